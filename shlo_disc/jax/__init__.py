"""The front end for JAX: from a function and its arguments to a program with symbolic sizes."""
