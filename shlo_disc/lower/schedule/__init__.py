"""What kernels compute and in which order, before any text: neutral of targets."""
