"""Commands of the kernel's packet generator as its users know them. Those that a key of the test has become that key,
so that a script's lines can be given as they are; the others go to the generator. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from leadline.errors import InputError
from leadline.plan.packet_rates import FCS_BYTES

TTL = 32
"""The TTL and hop limit of its frames."""


def _whole(name: str, value: str) -> int:
    if not value.isdecimal():
        raise ValueError(f"pktgen {name}: {value!r} is not a whole number")
    return int(value)


def _rate(pps: float) -> str | None:
    return f"{pps!r}pps" if pps else None


def _mix(value: str) -> dict[int, int]:
    pairs = [pair.partition(",") for pair in value.split()]
    return {_whole("imix_weights", size) + FCS_BYTES: _whole("imix_weights", count) for size, _, count in pairs}


_KEYS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "count": ("number", lambda value: _whole("count", value) or None),
    "delay": ("rate", lambda value: _rate(1e9 / _whole("delay", value) if _whole("delay", value) else 0)),
    "ratep": ("rate", lambda value: _rate(_whole("ratep", value))),
    "pkt_size": ("size", lambda value: _whole("pkt_size", value) + FCS_BYTES),
    "imix_weights": ("size", _mix),
    "dst": ("dst", str),
    "dst6": ("dst", str),
    "src6": ("src", str),
    "dst_mac": ("dst_mac", str),
    "src_mac": ("src_mac", str),
    "burst": ("batch", lambda value: _whole("burst", value)),
}
"""Each command with the key that it sets. Sizes of the kernel have no FCS, those of a test have one."""


def read_commands(texts: list[str]) -> dict[str, str]:
    """The commands of an option: `clone_skb=0`, `flag=IPSRC_RND`; those of one name are joined by commas.

    Raises:
        InputError: one is no NAME=VALUE, or two of one name contradict each other.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise InputError(f"--pktgen {text}: not NAME=VALUE", hint="as in --pktgen clone_skb=0")
        if name in found and name != "flag":
            raise InputError(f"--pktgen {name} is given twice", hint="leave one out")
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def adopt_commands(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a test, with those that its pktgen commands set.

    Raises:
        ValueError: a command is wrong, or its key is set too.
    """
    found = dict(given)
    commands = found.get("pktgen")
    if not isinstance(commands, Mapping):
        return found
    left = {}
    for name, value in commands.items():
        if name not in _KEYS:
            left[name] = value if isinstance(value, str) else str(value)
            continue
        key, read = _KEYS[name]
        if found.get(key) is not None:
            raise ValueError(f"pktgen {name} and {key} exclude each other")
        setting = read(str(value))
        if setting is not None:
            found[key] = setting
    return {**found, "pktgen": left}
