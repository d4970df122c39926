"""The versions of a function, from a trace to an executable."""
