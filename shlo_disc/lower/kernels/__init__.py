"""Emitters whose kernels compute one task after the other, on any machine.

A task needs no other one, or waits for tasks of lower numbers. A CPU runs many of them on a thread,
a GPU one on each thread. What differs between machines is asked of a `TaskMachine`.
"""
