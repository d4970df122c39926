"""From planned modules to machine code: kernels per target and the host program."""
