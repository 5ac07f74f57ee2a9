"""The agent's contract as Python types: generated from `crates/wire` by `make contract`, never edited.

`models` validates: `agents` reads and writes lines with it. `records` only types the dictionaries that JSON gives: the
analysis reads a journal's lines with it.
"""
