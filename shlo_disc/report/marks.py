"""Host programs that tell when their launches begin and end."""

from __future__ import annotations

import re

__all__ = ["marked_host"]

_COMMENT = re.compile(r"// (launch|launched) (\d+)\n")


def marked_host(text: str) -> str:
    """The host program with every comment `// launch N` made a call of `disc_context.mark`."""

    def mark(match: re.Match[str]) -> str:
        end = int(match[1] == "launched")
        tag = f"{match[2]}_{end}"
        return (
            f"%mark_field{tag} = llvm.getelementptr %ctx[6] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr\n"
            f"%mark{tag} = llvm.load %mark_field{tag} : !llvm.ptr -> !llvm.ptr\n"
            f"%mark_site{tag} = llvm.mlir.constant({match[2]} : i64) : i64\n"
            f"%mark_end{tag} = llvm.mlir.constant({end} : i64) : i64\n"
            f"llvm.call %mark{tag}(%ctx, %mark_site{tag}, %mark_end{tag}) : !llvm.ptr, "
            "(!llvm.ptr, i64, i64) -> ()\n"
        )

    return _COMMENT.sub(mark, text)
