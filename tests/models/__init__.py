"""Whole programs, each compiled once and run at several shapes."""
