"""Systems under test: programs between the clients and the server that are brought up and verified by traffic.

Each is one module, or a small package, with a `SYSTEM` object: its parameters, its needs, its bring-up. Nothing
imports these modules; `leadline.registry.SYSTEMS` finds them. The other modules here are shared by systems.
"""

NAMES = ("route", "wireguard", "openvpn", "strongswan", "libreswan", "stack", "given")
"""The systems, in the order in which plans list them."""
