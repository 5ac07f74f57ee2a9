"""Values of a HAR file: mappings, pairs of header fields, and texts that stand for themselves. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def mapping_of(value: Any) -> dict[str, Any]:
    """A mapping; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def pairs_of(headers: Any) -> list[tuple[str, str]]:
    """Names and values of header fields or parameters."""
    return [
        (str(one.get("name", "")), str(one.get("value", "")))
        for one in (headers if isinstance(headers, list) else [])
        if isinstance(one, dict)
    ]


def lower_pairs_of(headers: Any) -> list[tuple[str, str]]:
    """The same with names in lower case."""
    return [(name.lower(), value) for name, value in pairs_of(headers)]


def literal(text: str) -> str:
    """A text whose placeholders are no placeholders."""
    return _whole(text).replace("${", "$${")


def _whole(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def is_wanted_host(host: str, only_hosts: Sequence[str]) -> bool:
    """Whether a host is one of `--only-host`, or below one; all are if none is given."""
    return not only_hosts or any(host == one or host.endswith("." + one) for one in only_hosts)
