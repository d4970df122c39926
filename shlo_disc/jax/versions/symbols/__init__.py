"""The choice of symbols for the axes of a call's arguments."""
