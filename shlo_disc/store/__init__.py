"""The store: machine code and programs kept on disk, so that later processes need not compile them.

`folder` decides where it is and whether that place is safe, `entries` reads and writes it, and
`format` says what a file holds. An entry is found by a key that names all it depends on
(`lower.cpu.code_key`, `executables.kept`). So nothing is ever stale, and whatever goes wrong is a
miss: the program is compiled, as without a store.

Reading takes no lock. A file is written under another name and then renamed, so that a reader sees
a whole file or none, whoever is killed meanwhile. `claims` have one of many processes compile what
all of them want.
"""
