"""Code for GPUs and other machines from the store: made once, and again for whatever it reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

import shlo_disc
from shlo_disc.base import flags
from shlo_disc.base.errors import CacheMismatchError
from shlo_disc.lower.cuda import assembler
from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.gpu import codegen
from shlo_disc.lower.llvm import workers
from shlo_disc.lower.target import parse
from shlo_disc.store.entries import current

pytestmark = pytest.mark.usefixtures("own_store")

TEXT = """
func.func public @main(%x: tensor<?xf32> {disc.shape = ["n"]}) -> tensor<?xf32> {
  %y = stablehlo.tanh %x : tensor<?xf32>
  return %y : tensor<?xf32>
}
"""


@pytest.fixture
def asked(monkeypatch):
    """The requests to LLVM and to assemblers."""
    found = []
    answered = workers._answered

    def noted(request, sent):
        found.append(request)
        return answered(request, sent)

    monkeypatch.setattr(workers, "_answered", noted)
    return found


def source_of(target):
    codegen.RECENT.clear()
    (kernel,) = shlo_disc.compile(TEXT, target=target).host.kernels
    return kernel.source, parse(target).machine


@pytest.mark.parametrize("target", ["cuda:sm_90", "rocm:gfx942"])
def test_an_image_is_made_once(asked, target):
    source, machine = source_of(target)
    assert len(asked) == 1
    again = codegen.image(source, machine)
    assert again.from_store
    assert len(asked) == 1
    assert codegen.image(source, replace(machine, features="+ptx86")).from_store is False
    assert len(asked) == 2


def test_a_program_loads_its_kernels(asked):
    first = shlo_disc.compile(TEXT, target="cuda:sm_80")
    codegen.RECENT.clear()
    second = shlo_disc.compile(TEXT, target="cuda:sm_80")
    assert [first.loaded_kernels, second.loaded_kernels] == [0, 1]
    assert [kernel.image for kernel in first._kernels] == [k.image for k in second._kernels]
    assert len(asked) == 1


@pytest.mark.skipif(assembler.ptxas() is None, reason="no ptxas")
def test_a_cubin_is_made_once_by_one_assembler(monkeypatch, tmp_path):
    source, machine = source_of("cuda:sm_90")
    with flags.overridden(gpu_cubins=1):
        made = codegen.image(source, machine).machine_code
        with monkeypatch.context() as patch:
            patch.setattr(assembler, "with_ptxas", None)
            assert codegen.image(source, machine).machine_code == made
        other = tmp_path / "ptxas"
        other.symlink_to(assembler.ptxas())
        monkeypatch.setattr(assembler, "ptxas", lambda: other)
        asked = []
        monkeypatch.setattr(assembler, "with_ptxas", lambda *args: asked.append(args) or b"other")
        assert codegen.image(source, machine).machine_code == b"other"
        assert len(asked) == 1


def test_an_image_that_differs_from_a_new_one_is_told(monkeypatch):
    source, machine = source_of("cuda:sm_80")
    monkeypatch.setenv("SHLO_DISC_CACHE", "verify")
    assert not codegen.image(source, machine).from_store
    (entry,) = (
        e for e in current().entries() if e.content() == codegen.image(source, machine).image
    )
    current().write(entry.key, b"// other code")
    with pytest.raises(CacheMismatchError, match="other machine code"):
        codegen.image(source, machine)


def test_nothing_is_kept_of_no_code():
    machine = machine_of("sm_90")
    with flags.overridden(gpu_cubins=0):
        source, _ = source_of("cuda:sm_90")
        before = len([*current().entries()])
        assert codegen.image(source, machine).machine_code == b""
        assert len([*current().entries()]) == before
