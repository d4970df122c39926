"""What a compiled program is and how long its kernels take, for people and for programs.

`describe` collects everything about an executable as plain data (JSON); `text` and `page` show
it. `profile` runs the program with a mark at every launch and sets the times beside the floor of
the machine.
"""
