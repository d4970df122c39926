"""Code by the LLVM of llvmlite, for machines that torch-mlir's LLVM has no code generator of."""
