"""The agent's contract as Python types: generated from `crates/wire` by `make contract`, never edited.

Only `agents` talks to agents; everyone else reads these records.
"""
