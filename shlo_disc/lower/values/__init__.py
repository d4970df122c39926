"""The values of a fusion at any index, as kernel text: neutral of targets.

========================  ====================================================================
`builder.py`              the text of one kernel while it is written
`elements.py`             element types in memory and in registers
`index.py`                where a value is read, in terms of the loops of a kernel
`elemental.py`            the value of any tensor of a fusion at any index
`elementwise.py`          a rule for every op that computes an element from elements
`data_movement.py`        a rule for every op that moves elements
`reduction.py`            reductions, one element at a time
`math/`                   transcendental functions
========================  ====================================================================
"""
