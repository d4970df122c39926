"""Symbolic sizes, and the answers to questions about them."""
