"""One random edit of a program: of tokens of text, or of bytes."""

from __future__ import annotations

import random
import re

from tests.mutations.corpus import TEXTS, artifacts

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[%@#!^]?[\w.$]+|->|\s+|.')

_WORDS = (
    *("0", "1", "-1", "2", "4", "7", "65", "9223372036854775807", "-9223372036854775808"),
    *("99999999999999999999", "1099511627776", "?", "0x7FC00000", "1.0e400", "true", "[]", "{}"),
    *("f32", "f64", "f16", "bf16", "i1", "i32", "i64", "ui8", "index", "complex<f32>", "none"),
    *("tensor<?xf32>", "tensor<*xf32>", "tensor<0xf32>", "tensor<4x0xf32>", "!stablehlo.token"),
    *("tensor<1099511627776xf32>", "dense<0.0>", "dense<[]>", "dense_resource<r>", "sparse"),
    *("stablehlo.add", "stablehlo.dot_general", "stablehlo.while", "stablehlo.custom_call"),
    *("stablehlo.reduce", "stablehlo.rng", "chlo.top_k", "func.call", "disc.fusion", "foo.bar"),
    *('"b"', '"b*b"', '"(a+b)^60"', '"\\FF"', '""', "disc.shape", "disc.arena", "disc.donated"),
    *("jax.global_constant", "mhlo.sharding", "unit", "loc(unknown)", "@main", "@f", "%x", "->"),
    *("disc.complex", "disc.name", "disc.constraints", "disc.ffi", "shlo_disc.attributes"),
    *("shlo_disc.size_attributes", "indices_of_shape_operands", "called_computations"),
    *("mhlo.backend_config", "backend_config", "has_side_effect", "api_version", "top_k"),
    *("@ApproxTopK", "@stablehlo.dynamic_top_k", "@stablehlo.dynamic_fft", "@shape_assertion"),
    *("@stablehlo.dynamic_reduce_window", "@shlo_disc.parked.chlo.erf", "@chlo.erfc", "@add"),
    *("dense<(0.0, 0.0)> : tensor<complex<f32>>", "complex<f64>", "!q", '"RFFT"', '"-1"'),
    *("{k = 1}", "[@f]", "dense<> : tensor<0x2xi64>", '"99999999999999999999*a"'),
)


def case(seed: int) -> str | bytes:
    """The program of a seed: one in ten is bytecode."""
    random_ = random.Random(seed)
    if seed % 10 == 0:
        data = bytearray(random_.choice(artifacts()))
        for _ in range(random_.randint(1, 3)):
            data[random_.randrange(len(data))] = random_.randrange(256)
        if random_.random() < 0.2:
            del data[random_.randrange(len(data)) :]
        return bytes(data)
    tokens = _TOKEN.findall(random_.choice(TEXTS))
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        _edit(tokens, random_)
    return "".join(tokens)


def _edit(tokens: list[str], random_: random.Random) -> None:
    solid = [k for k, token in enumerate(tokens) if not token.isspace()]
    here, there = random_.choice(solid), random_.choice(solid)
    # Numbers, names and types make the programs that get furthest.
    alike = [k for k in solid if k != here and _kind(tokens[k]) == _kind(tokens[here])]
    choice = random_.random()
    if choice < 0.45 and alike:
        tokens[here] = tokens[random_.choice(alike)]
    elif choice < 0.75:
        tokens[here] = random_.choice(_WORDS)
    elif choice < 0.85:
        del tokens[here]
    elif choice < 0.92:
        tokens.insert(here, tokens[there])
    else:
        tokens[here], tokens[there] = tokens[there], tokens[here]


def _kind(token: str) -> str:
    return "0" if token[0].isdigit() else token[0] if token[0] in '%@#"' else token[:9]
