"""Jaxprs, equation by equation: how they depend, compare, run and are cut."""
