"""Hosts and links on this machine: call `jail.enter` first, then `Lab.build` with a layout of `topology`.

Floor 3. docs/decisions/0001-lab-jail.md has the reasons for the design.
"""
