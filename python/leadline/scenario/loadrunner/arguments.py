"""The arguments of web functions: `"Key=value"` in any order and case, and lists between markers. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from leadline.scenario.expressions import Expression
from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.context import CannotRun
from leadline.scenario.loadrunner.templates import native

Entries = dict[str, list[str | Expression]]


@dataclass(slots=True)
class Arguments:
    """The arguments of one call, with the parts of each value; keys are in lower case."""

    name: list[str | Expression] = field(default_factory=list)
    """The first argument, if it is no entry."""
    entries: Entries = field(default_factory=dict)
    items: list[Entries] = field(default_factory=list)
    """ITEMDATA."""
    resources: list[Entries] = field(default_factory=list)
    """EXTRARES."""
    filters: Entries = field(default_factory=dict)
    """SEARCH_FILTERS."""

    def text(self, *keys: str, default: str = "") -> str:
        """The value of the first of these keys that is there, as a native template."""
        for key in keys:
            if key in self.entries:
                return native(self.entries[key])
        return default

    def plain(self, key: str, default: str = "") -> str:
        """The value of a key as it is written; it has no parameters."""
        parts = self.entries.get(key)
        if parts is None:
            return default
        if not all(isinstance(one, str) for one in parts):
            raise CannotRun(f"{key} has parameters, which has no native form")
        return "".join(map(str, parts))


def read_arguments(
    call: c.FunctionCall, fill_in: Callable[[c.Expression], list[str | Expression]], *, is_named: bool = True
) -> Arguments:
    """The arguments of a call; `fill_in` gives the parts of each text. Raises CannotRun."""
    found = Arguments()
    current: Entries | None = None
    into = "entries"
    for index, one in enumerate(call.arguments):
        if isinstance(one, c.Name) and (one.name in _MARKERS or one.name in _ENDS):
            into = _MARKERS.get(one.name, into)
            current = None
            if one.name == "LAST":
                break
            continue
        parts = fill_in(one)
        if index == 0 and is_named:
            found.name = parts
            continue
        key, value = _split(parts, one, call)
        if into == "entries":
            found.entries.setdefault(key, value)
        elif into == "filters":
            found.filters.setdefault(key, value)
        else:
            listed = found.items if into == "items" else found.resources
            if current is None or (key in current and key in ("name", "url")):
                current = {}
                listed.append(current)
            current[key] = value
    return found


def _split(
    parts: list[str | Expression], one: c.Expression, call: c.FunctionCall
) -> tuple[str, list[str | Expression]]:
    first = parts[0] if parts else ""
    if not isinstance(first, str) or "=" not in first:
        shown = first if isinstance(first, str) else "a value that is computed"
        raise CannotRun(f"the argument {shown[:40]!r} of {call.name} is not KEY=VALUE", one.place)
    key, _, rest = first.partition("=")
    return key.strip().lower(), [*([rest] if rest else []), *parts[1:]]


_MARKERS = {
    "ITEMDATA": "items", "STARTITEM": "items", "EXTRARES": "resources", "SEARCH_FILTERS": "filters",
    "START_ITEMDATA": "items",
}  # fmt: skip
_ENDS = frozenset({"ENDITEM", "LAST", "STARTPARTIALITEM", "ENDPARTIALITEM"})
