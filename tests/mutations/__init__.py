"""Random edits of small modules: all of them compile or are refused by an error of ours.

`python -m tests.mutations --count 5000 -j 2`; the default tests run a sample.
"""
