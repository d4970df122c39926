"""Complex numbers become pairs of real numbers: no later stage sees a complex type.

    multiply %z, %w : complex<f32>[?]
    ==>
    subtract (multiply %z.re, %w.re), (multiply %z.im, %w.im)      the real plane
    add      (multiply %z.re, %w.im), (multiply %z.im, %w.re)      the imaginary plane

A value is two tensors of its shape. `main` takes and gives arrays of pairs, the same memory.

Why     Kernels compute with real numbers, and each plane is fused, sliced and dropped by itself.
Needs   calls inlined, CHLO and the ops of `expand_ops` expanded, the sizes of arguments described.
Keeps   every result that StableHLO defines; see docs/complex.md for the error of each function.
Cost    O(ops).
Source  StableHLO spec, section "Types" and each op; C99 Annex G for special values.
"""
