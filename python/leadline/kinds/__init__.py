"""The kinds of test. Each is one module or a small package with a `KIND` object, which has everything specific to it.

No other package imports a kind. They look it up in `leadline.registry.KINDS`, and declare the attributes that they
use.
"""

NAMES = ("tcp", "udp", "rr", "http", "tunnel", "scenario", "replay", "load-latency", "packets")
"""The kinds, in the order in which plans list them."""

ALIASES = {"packet_generator": "packets", "packet_receiver": "packets"}
"""Kinds of agents' tasks whose test has another name."""
