"""The kinds of test. Each is one module, or a small package, with its `KIND`: all that Leadline knows of that kind.

No other package imports a kind; they find it in `leadline.registry.KINDS` and use what they declare to need of one.
"""

NAMES = ("tcp", "udp", "rr", "http", "tunnel")
"""The kinds, in the order in which plans list them."""
