"""Python that needs a size as a number, and spellings that keep the size a symbol.

`docs/differs.md` prints the table. The texts are expressions over `x`, an array of `n` rows.
"""

from __future__ import annotations

from typing import NamedTuple


class Spelling(NamedTuple):
    """One way to ask for a number."""

    said: str
    """What the reason of the constant contains; "" where JAX's error does not tell the way."""
    pins: tuple[str, ...]
    """Expressions that make `n` a constant."""
    keeps: tuple[str, ...]
    """Expressions to write instead; () where there is none."""


SPELLINGS = (
    Spelling(
        "uses a Python integer of",
        ("range(n)", "len(x)", "np.ones((n, n))", "np.tril(np.ones((n, n)))", "math.gcd(n, 4)"),
        (
            "jnp.arange(n)", "jnp.ones((n, n))", "jnp.tril(jnp.ones((n, n)))",
            "lax.fori_loop(0, n, body, x)",
        ),
    ),
    Spelling(
        "",
        ("[row for row in x]", "list(x)"),
        ("lax.scan(step, 0.0, x)", "jax.vmap(jnp.sin)(x)"),
    ),
    Spelling("", ("x[:, None] / np.array(x.shape)",), ("x[:, None] / jnp.array(x.shape)",)),
    Spelling("uses int of", ("int(n)", "np.int32(n)"), ("n", "jnp.int32(n)")),
    Spelling(
        "uses float of",
        ("float(n)", "np.float32(n)", "math.sqrt(n)"),
        ("x / n", "jnp.float32(n)", "n ** 0.5", "jnp.sqrt(n)"),
    ),
    Spelling(
        "ConcretizationTypeError",
        ("math.ceil(n * 0.3)", "int(n / 2)"),
        ("math.ceil(n / 4)", "-(-n // 4)", "n // 2"),
    ),
    Spelling(
        "TracerBoolConversionError",
        ("np.arange(n)", "bool(n / 4 > 1)"),
        ("jnp.arange(n)", "bool(n > 4)"),
    ),
    Spelling(
        "In arange with non-constant arguments", ("jnp.arange(0.5, n)",), ("0.5 + jnp.arange(n)",)
    ),
    Spelling(
        "uses the hash of",
        ("n in {2, 4}", "{n: 1}", "set(x.shape)"),
        ("n in (2, 4)", "n == 2"),
    ),
    Spelling("uses the text of", ("str(n)", 'f"{n}"', "print(x.shape)"), ()),
    Spelling("uses a number of repeats of", ("[0] * n",), ("jnp.zeros(n)",)),
    Spelling("uses the bits of", ("n | 1", "n ^ 1", "1 << n"), ("n % 2", "n >> 1", "2 * n")),
    Spelling("uses bit_length() of", ("n.bit_length()",), ()),
    Spelling("uses the digits of", ("round(n, -1)",), ("(n + 5) // 10 * 10",)),
    Spelling("uses complex of", ("complex(n)",), ()),
)  # fmt: skip
"""Every way to ask for a number."""


def advice(reason: str) -> str:
    """What to write where `reason` made a size a constant; "" where there is nothing to say."""
    for said, pins, keeps in SPELLINGS:
        if said and said in reason:
            these = ", ".join(pins)
            if not keeps:
                return f"{these}: better outside the function"
            return f"{', '.join(keeps)} keep the symbol, where {these} do not"
    return ""
