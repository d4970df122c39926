"""The page of explain() and profile() in a real browser."""

import re
import shutil
import subprocess

import jax.numpy as jnp
import pytest

import shlo_disc

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no chromium; tools/browser.sh installs Debian's"
)


def layer(x, w):
    return jnp.tanh(x @ w).sum(-1), jnp.sort(x @ w, -1)


ARRAYS = jnp.ones((6, 8)), jnp.ones((8, 10))


def rendered(tmp_path, html, script="", fragment=""):
    """The page's DOM after it has run, and `script` after it."""
    path = tmp_path / "page.html"
    path.write_text(html.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
               "--no-first-run", "--disable-background-networking", "--disable-component-update",
               "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
               f"file://{path}{fragment}"]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def page():
    f = shlo_disc.jit(layer)
    f(*ARRAYS)
    return f.explain("html")


def test_the_page_needs_nothing_from_anywhere():
    html = page()
    assert not re.search(r"""(?:src|href)\s*=|@import|url\(|fetch\(|https?://(?!www\.w3)""", html)
    assert html.count("</script>") == 2


def test_names_cannot_break_out_of_the_data():
    f = shlo_disc.jit(layer, name="</script><b>")
    f(*ARRAYS)
    html = f.explain("html")
    assert html.count("</script>") == 2
    assert "<b>" not in html


@needs_browser
@pytest.mark.unsanitized
def test_kernels_and_their_graph_are_shown(tmp_path):
    dom = rendered(tmp_path, page())
    assert re.search(r'<h1 id="name">layer</h1>', dom)
    assert len(re.findall(r'class="row"', dom)) == len(re.findall(r'class="kind">', dom)) >= 2
    assert 'class="arc"' in dom
    assert "temporary memory" in dom


@needs_browser
@pytest.mark.unsanitized
def test_a_click_shows_the_kernel_and_a_filter_hides_others(tmp_path):
    script = """
      document.querySelectorAll(".row")[0].click();
      const filter = document.getElementById("filter");
      filter.value = "sort"; filter.oninput({target: filter});
      document.body.dataset.shown = document.querySelectorAll(".row:not(.hidden)").length;
      document.body.dataset.detail = document.querySelector("#detail h2").textContent;
    """
    dom = rendered(tmp_path, page(), script)
    assert 'data-shown="1"' in dom
    assert 'data-detail="1 · dense' in dom
    assert "if operand 1 is kept packed" in dom


@needs_browser
@pytest.mark.unsanitized
def test_a_profile_shows_times(tmp_path):
    html = shlo_disc.jit(layer).profile(*ARRAYS).as_html()
    dom = rendered(tmp_path, html, fragment="#kernel=1")
    assert dom.count('class="bar"') >= 2
    assert re.search(r"<th>floor</th><td[^>]*>[\d.]+ ms, [\d.]+ times", dom)
    assert "GFLOP/s" in dom
