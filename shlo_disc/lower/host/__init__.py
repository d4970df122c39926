"""The host program: sizes, guards, the arena, control flow and launches, as native functions."""
