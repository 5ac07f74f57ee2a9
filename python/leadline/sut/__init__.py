"""Systems under test: what is brought up between the clients and the server, and checked by traffic.

Each is one module, or a small package, with its `SYSTEM`: its parameters, what it needs, how it is brought up. Nothing
imports these modules; they are found in `leadline.registry.SYSTEMS`. The other modules here are what systems share.
"""

NAMES = ("route", "wireguard", "openvpn", "given")
"""The systems, in the order in which plans list them."""
