"""Host programs that tell when their launches begin and end."""

from __future__ import annotations

from shlo_disc.lower.host.record import HostProgram, Mark


def marked_host(host: HostProgram) -> str:
    """The text of a host program with every mark made a call of `disc_context.mark`."""
    return host.whole(_call)


def _call(mark: Mark) -> str:
    end = int(mark.ends)
    tag = f"{mark.site}_{end}"
    number = f"llvm.mlir.constant({mark.site} : i64) : i64\n"
    if mark.first:
        number += f"%mark_number{tag} = llvm.add %mark_site{tag}, {mark.first} : i64\n"
    site = f"%mark_number{tag}" if mark.first else f"%mark_site{tag}"
    return (
        f"%mark_field{tag} = llvm.getelementptr %ctx[6] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr\n"
        f"%mark{tag} = llvm.load %mark_field{tag} : !llvm.ptr -> !llvm.ptr\n"
        f"%mark_site{tag} = {number}"
        f"%mark_end{tag} = llvm.mlir.constant({end} : i64) : i64\n"
        f"llvm.call %mark{tag}(%ctx, {site}, %mark_end{tag}) : !llvm.ptr, "
        "(!llvm.ptr, i64, i64) -> ()\n"
    )
