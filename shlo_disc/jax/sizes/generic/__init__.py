"""Functions of JAX that want constant sizes, written for symbolic ones."""
