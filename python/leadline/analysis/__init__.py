"""Numbers from numbers: steady windows, metrics, verdicts, tables.

Pure: no I/O, no clock; the same input gives the same findings.
"""
