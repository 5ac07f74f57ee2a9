"""Reads LoadRunner's scripts (`.usr` with its actions in C) and the Controller's scenarios (`.lrs`) as scenarios.

`script` and `controller` are the entries. `tokens` and `parser` read C; `translator` and its neighbours give each
statement a native form, or refuse it by its line. Pure: files are asked for by name.
"""
