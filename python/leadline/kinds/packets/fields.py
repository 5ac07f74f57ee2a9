"""Values of a frame's fields as a user writes them: addresses, ports, VLANs; one or a range, in turn or at random."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from leadline.plan.frame_mix import FrameMix, read_mix

_RANDOM = " random"
_MAX_PORT, _MAX_VLAN = 65_535, 4094
_MAC = re.compile(r"[0-9a-fA-F]{1,2}([:-][0-9a-fA-F]{1,2}){5}")


@dataclass(frozen=True, slots=True)
class Range:
    """The first and the last value, and whether flows have them at random."""

    first: str
    last: str
    is_random: bool

    @property
    def order(self) -> str:
        """How flows have them, in an agent's terms."""
        return "random" if self.is_random else "in_turn"


def _split(text: str) -> tuple[str, bool]:
    bare = text.strip()
    return bare.removesuffix(_RANDOM).strip(), bare.endswith(_RANDOM)


def addresses(text: str) -> Range:
    """`192.0.2.1`, `192.0.2.1-192.0.2.9` or `192.0.2.0/28`, and `random` behind it.

    Raises:
        ValueError: it is none of these.
    """
    bare, is_random = _split(text)
    try:
        if "/" in bare:
            network = ip_network(bare)
            return Range(str(network[0]), str(network[-1]), is_random)
        first, _, last = bare.partition("-")
        begin, end = ip_address(first.strip()), ip_address((last or first).strip())
    except ValueError:
        raise ValueError(
            f"{text!r} is no address or range; write 192.0.2.1, 192.0.2.1-192.0.2.9 or 192.0.2.0/28"
        ) from None
    if begin.version != end.version or int(begin) > int(end):
        raise ValueError(f"{text!r}: the last address is not behind the first")
    return Range(str(begin), str(end), is_random)


def version(text: str) -> int:
    """The IP version of addresses that were read before."""
    return ip_address(addresses(text).first).version


def numbers(text: str, highest: int, what: str) -> Range:
    """`9` or `1024-65535`, and `random` behind it.

    Raises:
        ValueError: it is no such range.
    """
    bare, is_random = _split(text)
    first, _, last = bare.partition("-")
    last = last or first
    if not (first.strip().isdecimal() and last.strip().isdecimal()) or not 0 <= int(first) <= int(last) <= highest:
        raise ValueError(f"{text!r} is no range of {what}; write one, or two from 0 to {highest}: 1024-65535")
    return Range(str(int(first)), str(int(last)), is_random)


def ports(text: str) -> Range:
    """A range of ports."""
    return numbers(text, _MAX_PORT, "ports")


def vlans(text: str) -> list[Range]:
    """VLANs: `7`, `1-100`, or two of them with a dot, the outermost first (QinQ).

    Raises:
        ValueError: they are none.
    """
    tags = text.split(".")
    if len(tags) > 2:
        raise ValueError(f"{text!r}: a frame has at most two VLAN tags; write 7, or 100.7 for two")
    return [numbers(tag, _MAX_VLAN, "VLANs") for tag in tags]


def _checked(read: Callable[[str], Any]) -> BeforeValidator:
    def check(value: Any) -> str:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(text, str):
            raise ValueError(f"{value!r} is no text")
        read(text)
        return text

    return BeforeValidator(check)


def _mac(text: str) -> str:
    if _MAC.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no MAC address; one is 02:00:00:00:00:01")
    return text


def _sizes(value: Any) -> Mapping[int, int]:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return {value: 1} if isinstance(value, int) and not isinstance(value, bool) else read_mix(value)


Addresses = Annotated[str, _checked(addresses)]
Ports = Annotated[str, _checked(ports)]
Vlans = Annotated[str, _checked(vlans)]
Mac = Annotated[str, AfterValidator(_mac)]
Address = Annotated[str, AfterValidator(lambda text: str(ip_address(text)))]
FrameSizes = Annotated[FrameMix, BeforeValidator(_sizes)]
AnyAddress = IPv4Address | IPv6Address
