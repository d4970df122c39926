"""NVIDIA's GPUs: what differs from other GPUs is the table of :mod:`.machine`."""
