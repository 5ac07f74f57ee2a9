"""Hosts and links made on this machine: `jail.enter` first, then `Lab.build` a layout of `topology`.

Floor 3. docs/decisions/0001-lab-jail.md says why it is so.
"""
