"""Figures of a part of a test, by tags: `error_ratio{name:login,team:shop}`. Pure.

A figure without tags is of the whole test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

NO_TAGS: Mapping[str, str] = MappingProxyType({})


def split_figure(metric: str) -> tuple[str, Mapping[str, str]]:
    """The figure without its tags, and its tags."""
    match = _TAGGED.fullmatch(metric)
    return (metric, NO_TAGS) if match is None else (match[1], read_tags(match[2]))


def read_tags(text: str) -> dict[str, str]:
    """The tags of `name:login,team:shop`; the value of one without a colon is empty."""
    pairs = (part.partition(":") for part in text.split(",") if part.strip())
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def with_tags(metric: str, tags: Mapping[str, str]) -> str:
    """The name of a figure of the part that has these tags."""
    return metric + ("{" + ",".join(f"{name}:{value}" for name, value in tags.items()) + "}" if tags else "")


_TAGGED = re.compile(r"([^{}]+)\{([^{}]*)\}")
