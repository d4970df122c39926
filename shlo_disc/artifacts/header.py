"""A header for C++ with the arguments and results of one artifact by name and type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import count

from shlo_disc.artifacts.manifest import Argument, Manifest, Result

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit continue decltype default delete disc do double dynamic_cast else enum errno explicit
export extern false float for friend goto if inline int linux long mutable namespace new noexcept
not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
return short signed sizeof static static_assert static_cast std struct switch template this
thread_local throw true try typedef typeid typename union unix unsigned using virtual void volatile
wchar_t while xor xor_eq
"""
_WORDS = frozenset(_KEYWORDS.split())
"""Those of C++20, macros, and namespaces that the header uses."""

_TYPES = {
    "bool": "bool", "float32": "float", "float64": "double",
    "complex64": "std::complex<float>", "complex128": "std::complex<double>",
    "float16": "disc::Float16", "bfloat16": "disc::BFloat16",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip


def cpp_header(manifest: Manifest) -> str:
    """C++17 over `disc.hpp`: `Arguments`, `Results` and `Program` in a namespace `artifact::NAME`.

    The name is that of the program, as far as C++ has such names.
    """
    space = _identifier(manifest.name, "program")
    where = function_name(manifest.name)
    takes = _members(manifest.arguments, "argument")
    gives = _members(manifest.results, "result")
    guard = f"DISC_ARTIFACT_{space.upper()}_HPP"
    lines = [
        "// Written by `disc-dump --header`; it is of one artifact, which it checks.",
        f"#ifndef {guard}",
        f"#define {guard}",
        "#include <disc.hpp>",
        "",
        "// Of the shared library that `save(..., format='so')` writes.",
        f'extern "C" const void* {where}(size_t* bytes);',
        "",
        f"namespace artifact::{space} {{",
        "",
        "struct Arguments {",
        *_fields("Array", manifest.arguments, takes),
        "};",
        "",
        "struct Results {",
        *_fields("Result", manifest.results, gives),
        "};",
        "",
        "class Program : public disc::Program {",
        " public:",
        "  // Throws disc::Error, also for an artifact of other arguments or results.",
        "  explicit Program(const std::string& path, const disc_options* options = nullptr)",
        "      : disc::Program(path, options) {",
        "    expect_types();",
        "  }",
        "  // Of an artifact in memory.",
        "  Program(const void* data, size_t bytes, const disc_options* options)",
        "      : disc::Program(data, bytes, options) {",
        "    expect_types();",
        "  }",
        "  // Of the shared library of the artifact, with which the caller is linked.",
        "  static Program linked(const disc_options* options = nullptr) {",
        "    size_t bytes = 0;",
        f"    const void* const data = {where}(&bytes);",
        "    return Program(data, bytes, options);",
        "  }",
        "",
        "  // Throws disc::Error, which tells the argument and its sizes.",
        "  Results operator()(const Arguments& arguments) const {",
        "    Results results;",
        "    run(arguments, results);",
        "    return results;",
        "  }",
        "  // The same with memory of earlier results, or of the caller.",
        "  void run(const Arguments& arguments, Results& results) const {",
        f"    {_untyped('disc_array', 'arguments', takes)}",
        f"    {_untyped('disc_buffer', 'results', gives)}",
        f"    disc::check(disc_program_run(get(), {_given('arguments', takes)},",
        f"                                 {_given('results', gives)}));",
        *(f"    results.{name}.take(untyped_results[{k}]);" for k, name in enumerate(gives)),
        "  }",
        "",
        " private:",
        "  void expect_types() const {",
        f"    expect({_types(manifest.arguments)}, {_types(_with_sizes(manifest.results))});",
        "  }",
        "};",
        "",
        f"}}  // namespace artifact::{space}",
        f"#endif  // {guard}",
        "",
    ]
    return "\n".join(lines)


def function_name(program: str) -> str:
    """That tells where the artifact is in its shared library: `const void* NAME(size_t* bytes)`."""
    return f"disc_artifact_{_identifier(program, 'program')}"


def _identifier(text: str, otherwise: str) -> str:
    """A name for C and C++ that is like `text`."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or otherwise
    return f"{otherwise}_{name}" if name[0].isdigit() or name in _WORDS else name


def _members(specs: Sequence[Argument | Result], what: str) -> list[str]:
    """Names of their own for arguments or results."""
    found: list[str] = []
    for number, spec in enumerate(specs):
        name = _identifier(spec.name, what) if spec.name else f"{what}_{number}"
        others = (f"{name}_{k}" for k in count(number))
        found.append(name if name not in found else next(n for n in others if n not in found))
    return found


def _fields(kind: str, specs: Sequence[Argument | Result], names: Sequence[str]) -> Iterable[str]:
    for spec, name in zip(specs, names, strict=True):
        told = json.dumps(f"{spec.name}: {spec.dtype}[{', '.join(spec.texts)}]")
        yield f"  disc::{kind}<{_element(spec.dtype)}, {len(spec.texts)}> {name};  // {told}"


def _element(dtype: str) -> str:
    """The type of an element."""
    return _TYPES.get(dtype, f"disc::Element<DISC_{dtype.upper()}, uint8_t>")


def _with_sizes(results: Iterable[Result]) -> list[Argument]:
    """Results with their sizes as the library tells them."""
    return [
        Argument(
            one.name,
            one.dtype,
            tuple(int(t) if t.isdecimal() and len(t) < 19 else -1 for t in one.texts),
            one.texts,
        )
        for one in results
    ]


def _types(specs: Iterable[Argument]) -> str:
    rows = (
        f"{{{_literal(one.name)}, DISC_{one.dtype.upper()}, {{{', '.join(map(str, one.sizes))}}}}}"
        for one in specs
    )
    return _braces(rows)


def _braces(rows: Iterable[str]) -> str:
    """A list, with a row a line."""
    return "{" + "".join(f"\n        {row}," for row in rows) + "}"


def _literal(text: str) -> str:
    """A text in C++, in UTF-8."""
    return json.dumps(text, ensure_ascii=False).replace("??", '?""?')


def _untyped(kind: str, what: str, names: Sequence[str]) -> str:
    """The arrays of a call; there are none of no elements in C++."""
    if not names:
        return f"(void){what};"
    made = _braces(f"{what}.{name}.untyped()" for name in names)
    return f"{'const ' if kind == 'disc_array' else ''}{kind} untyped_{what}[] = {made};"


def _given(what: str, names: Sequence[str]) -> str:
    return f"{f'untyped_{what}' if names else 'nullptr'}, {len(names)}"
