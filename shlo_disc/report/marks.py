"""Host programs that tell when their launches begin and end."""

from __future__ import annotations

import re

__all__ = ["marked_host"]

_COMMENT = re.compile(r"// (launch|launched) (?:(%\w+) \+ )?(\d+)\n")


def marked_host(text: str) -> str:
    """The host program with every comment `// launch N` made a call of `disc_context.mark`.

    In a function that several plans share the comment is `// launch %first + N`.
    """

    def mark(match: re.Match[str]) -> str:
        end = int(match[1] == "launched")
        tag = f"{match[3]}_{end}"
        number = f"llvm.mlir.constant({match[3]} : i64) : i64\n"
        if match[2]:
            number += f"%mark_number{tag} = llvm.add %mark_site{tag}, {match[2]} : i64\n"
        site = f"%mark_number{tag}" if match[2] else f"%mark_site{tag}"
        return (
            f"%mark_field{tag} = llvm.getelementptr %ctx[6] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr\n"
            f"%mark{tag} = llvm.load %mark_field{tag} : !llvm.ptr -> !llvm.ptr\n"
            f"%mark_site{tag} = {number}"
            f"%mark_end{tag} = llvm.mlir.constant({end} : i64) : i64\n"
            f"llvm.call %mark{tag}(%ctx, {site}, %mark_end{tag}) : !llvm.ptr, "
            "(!llvm.ptr, i64, i64) -> ()\n"
        )

    return _COMMENT.sub(mark, text)
