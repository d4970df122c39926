"""What the targets of GPUs share: kernels, and how texts of them become machine code.

`lower/cuda` and `lower/rocm` hold the tables in which their machines differ (:class:`Machine`).
"""
