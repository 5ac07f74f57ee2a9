"""The fixtures of this folder are in `openvpn_place`."""

from openvpn_place import keys, place

__all__ = ["keys", "place"]
