"""Symbolic sizes: their algebra, what is known of them, and the shape of every value."""
