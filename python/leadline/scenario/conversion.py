"""What became of each part of a converted file, and the tree that it became.

A reader of another format builds mappings of the native format (`Made`, each with its line), and reports for each part
whether it was kept, changed or dropped and why, or cannot run. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from leadline.errors import PlanError
from leadline.plan.source import Mark, Node

Outcome = Literal["kept", "changed", "dropped", "cannot-run"]


@dataclass(frozen=True, slots=True)
class Item:
    """One part of the original."""

    outcome: Outcome
    what: str
    """The part: its class and name."""
    line: int | None
    why: str = ""
    """Why it was changed or dropped, or cannot run."""
    file: str | None = None
    """The file of the line, if it is not the converted one."""


@dataclass(slots=True)
class Conversion:
    """What became of the parts of one file."""

    file: str
    items: list[Item] = field(default_factory=list)
    parameters: set[str] = field(default_factory=set)
    """Parameters that the original does not read, and its native form needs."""
    _seen: set[Item] = field(default_factory=set)

    def kept(self, what: str, line: int | None, file: str | None = None) -> None:
        """The part does in the native form what it did."""
        self._add("kept", what, line, "", file)

    def changed(self, what: str, line: int | None, why: str, file: str | None = None) -> None:
        """The part is kept, with a difference."""
        self._add("changed", what, line, why, file)

    def dropped(self, what: str, line: int | None, why: str, file: str | None = None) -> None:
        """The part is left out, and has no effect on the requests."""
        self._add("dropped", what, line, why, file)

    def cannot(self, what: str, line: int | None, why: str, file: str | None = None) -> None:
        """The part has an effect that has no native form."""
        self._add("cannot-run", what, line, why, file)

    def place(self, item: Item) -> str:
        """File and line of a part."""
        file = item.file or self.file
        return file if item.line is None else f"{file}:{item.line}"

    def _add(self, outcome: Outcome, what: str, line: int | None, why: str, file: str | None) -> None:
        item = Item(outcome, what, line, why, file)
        if item not in self._seen:
            self._seen.add(item)
            self.items.append(item)

    def counts(self) -> dict[str, int]:
        """Number of parts by outcome."""
        return {name: sum(item.outcome == name for item in self.items) for name in _OUTCOMES}

    def raise_if_stopped(self, advice: str) -> None:
        """Stop at parts that cannot run. Raises PlanError with all of them."""
        errors = [
            PlanError(item.file or self.file, item.line, f"{item.what}: {item.why}", hint=advice)
            for item in self.items
            if item.outcome == "cannot-run"
        ]
        if errors:
            first, *rest = errors
            first.others = tuple(rest)
            raise first


class Made(dict[str, Any]):
    """A mapping of the native format, with the line of its original, and the file if it is another one."""

    def __init__(self, line: int | None, *args: Any, **entries: Any) -> None:
        super().__init__(*args, **entries)
        self.line = line
        self.origin: str | None = None
        self.is_one = False
        """Whether its steps stand for one part of the original."""


def tree(value: Any, file: str, line: int | None = 1) -> Node:
    """A value of mappings, lists and scalars as a tree with marks."""
    if isinstance(value, Made):
        line, file = value.line or line, value.origin or file
    mark = Mark(file, line)
    if isinstance(value, dict):
        return Node({key: tree(entry, file, line) for key, entry in value.items()}, mark)
    if isinstance(value, list | tuple):
        return Node([tree(entry, file, line) for entry in value], mark)
    return Node(value, mark)


def requests_in(value: Any) -> Iterable[Made]:
    """All requests below a value, in order."""
    if isinstance(value, dict):
        if isinstance(value, Made) and "_request" in value:
            yield value
        for entry in value.values():
            yield from requests_in(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from requests_in(entry)


def hoist(document: dict[str, Any]) -> None:
    """Moves what all requests have in common to `http` and `base`, and removes the readers' own keys."""
    requests = list(requests_in(document))
    shared: dict[str, Any] = dict(document.get("http", {}))
    for key in _HOISTED if requests else ():
        first = requests[0].get(key, _NOTHING)
        if first is not _NOTHING and all(one.get(key, _NOTHING) == first for one in requests):
            shared[key] = first
            for one in requests:
                del one[key]
    common = dict(requests[0].get("headers", {})) if requests else {}
    for one in requests[1:]:
        own = one.get("headers", {})
        common = {name: value for name, value in common.items() if own.get(name, _NOTHING) == value}
    if common:
        shared["headers"] = common
        for one in requests:
            one["headers"] = {name: value for name, value in one["headers"].items() if name not in common}
    _hoist_base(document, requests)
    for one in requests:
        del one["_request"]
        one.pop("_base", None)
        if not one.get("headers", True):
            del one["headers"]
    shared = {key: value for key, value in shared.items() if _DEFAULTS.get(key, _NOTHING) != value}
    if shared:
        document["http"] = shared
    else:
        document.pop("http", None)


def _hoist_base(document: dict[str, Any], requests: list[Made]) -> None:
    """The most common base becomes the scenario's; requests with it have paths alone."""
    bases = [one["_base"] for one in requests if one.get("_base")]
    if not bases:
        return
    base = max(dict.fromkeys(bases), key=bases.count)
    document["base"] = base
    for one in requests:
        method = one["_request"]
        if one.get("_base") and one["_base"] != base:
            one[method] = one["_base"] + one[method]


def ordered(document: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The entries in a given order of keys; others last."""
    first = {key: document[key] for key in keys if key in document}
    return {**first, **{key: value for key, value in document.items() if key not in first}}


_OUTCOMES: tuple[Outcome, ...] = ("kept", "changed", "dropped", "cannot-run")
_NOTHING = object()
_HOISTED = (
    "follow",
    "cookies",
    "cache",
    "keep_alive",
    "embedded",
    "timeout",
    "connect_timeout",
    "basic",
    "waits",
    "ok",
)
_DEFAULTS: dict[str, Any] = {"cookies": True, "cache": False, "keep_alive": True, "follow": 10}
