"""Calls of a function: their description, lowering and execution."""
