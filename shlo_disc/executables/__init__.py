"""What a compiled program is, as data: records, their bytes, and the store of them.

`record` has one frozen record a program, and `codec` writes records as bytes and reads them.
`kept` finds the record of a program that an earlier process compiled.
"""
