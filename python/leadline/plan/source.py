"""Parses YAML text to a tree of nodes, each with the file and line (or the argument) of its origin.

Owns syntax, duplicate keys, inheritance of one tree by another, and changes to a tree. Knows nothing about the
meaning of plans. Pure: text in, tree out. Nodes are immutable; a change creates new nodes, so every value keeps its
origin.
"""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from leadline.errors import PlanError
from leadline.plan.problems import Problems
from leadline.plan.yaml_errors import explain
from leadline.plan.yaml_size import line_of_excess

Scalar = str | int | float | bool | None
Location = tuple[str | int, ...]
"""A place in a tree: keys and list positions from the root down."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The place of a value; `line` is None if `file` is a command line argument."""

    file: str
    line: int | None

    def error(self, message: str, *, hint: str | None = None) -> PlanError:
        """An error at this place."""
        return PlanError(self.file, self.line, message, hint=hint)


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its origin: for an entry of a mapping the key's line, for an item of a list its own."""

    value: Scalar | dict[str, Node] | list[Node]
    mark: Mark

    @property
    def mapping(self) -> dict[str, Node]:
        """The entries; empty if this is not a mapping."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """The items; empty if this is not a list."""
        return self.value if isinstance(self.value, list) else []

    def at(self, location: Location) -> Node:
        """The node at a place, or its nearest existing ancestor."""
        node = self
        for part in location:
            below = node.child(part)
            if below is None:
                return node
            node = below
        return node

    def child(self, part: str | int) -> Node | None:
        """An entry by its key, or an item by its position or its `name`."""
        if isinstance(part, int):
            return self.items[part] if part < len(self.items) else None
        if part in self.mapping:
            return self.mapping[part]
        return next((item for item in self.items if name_of(item) == part), None)

    def with_entry(self, part: str | int, entry: Node) -> Node:
        """A copy with one entry or item replaced, or, for a mapping, added."""
        if isinstance(self.value, list):
            kept = [entry if item is self.child(part) else item for item in self.value]
            return Node(kept, self.mark)
        return Node({**self.mapping, str(part): entry}, self.mark)


def plain(node: Node) -> Any:
    """The tree as dicts, lists and scalars."""
    if isinstance(node.value, dict):
        return {key: plain(entry) for key, entry in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def walk(node: Node) -> Iterator[Node]:
    """This node and all nodes below it."""
    yield node
    for below in (*node.mapping.values(), *node.items):
        yield from walk(below)


def name_of(node: Node) -> str | None:
    """The `name` of a list's item."""
    name = node.mapping.get("name")
    return name.value if name is not None and isinstance(name.value, str) else None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most similar to this one."""
    return _nearest(word, tuple(known))


@lru_cache(maxsize=128)
def _nearest(word: str, known: tuple[str, ...]) -> str | None:
    # A generated plan repeats one mistake thousands of times, and the comparison takes a third of a millisecond.
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=0.6)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint: the most similar known word, or the list of known words."""
    options = list(dict.fromkeys(known))
    near = nearest(word, options)
    if near:
        return f"did you mean '{near}'?"
    shown = ", ".join(options[:_MOST_OPTIONS_SHOWN]) + (", ..." if len(options) > _MOST_OPTIONS_SHOWN else "")
    return f"there is {shown}" if options else "there is none"


def parse_plan_text(text: str, file: str, problems: Problems, what: Literal["plan", "scenario"] = "plan") -> Node:
    """The tree of a plan's text, always a mapping. Entries that cannot be read become problems and are left out.

    Raises:
        PlanError: it is not YAML, empty, or not a mapping.
    """
    most = _MOST_READ[what]
    if (line := line_of_excess(text, most)) is not None:
        raise _too_large(Mark(file, line), most)
    tree = _parse(text, Mark(file, 1), problems, fixed=None, most_nodes=most)
    if tree is None or (tree.value is None and not text.strip()):
        needed = {"plan": "name, sut and tests", "scenario": "a URL, as in 'get: http://127.0.0.1/'"}[what]
        raise PlanError(file, 1, f"the {what} is empty", hint=f"it needs at least {needed}")
    if not isinstance(tree.value, dict):
        raise tree.mark.error(
            f"the {what} is not a mapping", hint=f"write it as 'key: value' lines, such as 'name: my-{what}'"
        )
    return tree


def parse_value(text: str, mark: Mark) -> Node:
    """The tree of a value given as an argument; every node has the argument as its origin. Raises PlanError."""
    problems = Problems()
    value = _parse(text, mark, problems, fixed=mark) or Node(None, mark)
    problems.raise_any()
    return value


def read_document(text: str, file: str) -> Any:
    """The plain data of a text in YAML that is no plan.

    Raises:
        PlanError: the first mistake, with its line.
    """
    problems = Problems()
    tree = _parse(text, Mark(file, 1), problems, fixed=None)
    problems.raise_any()
    return None if tree is None else plain(tree)


def inherit(base: Node, over: Node) -> Node:
    """`over` merged over `base`: mappings merge, items with names merge by name, all else is replaced.

    If both have a `kind` and the kinds differ, nothing is inherited: the keys of one kind have no meaning for
    another.
    """
    if isinstance(base.value, dict) and isinstance(over.value, dict):
        kinds = (base.mapping.get("kind"), over.mapping.get("kind"))
        if kinds[0] and kinds[1] and kinds[0].value != kinds[1].value:
            return over
        merged = {
            key: inherit(base.value[key], entry) if key in base.value else entry for key, entry in over.value.items()
        }
        return Node({**base.value, **merged}, over.mark)
    if _all_named(base) and _all_named(over):
        below = {name_of(item): item for item in base.items}
        above = {name_of(item): item for item in over.items}
        if len(above) == len(over.items):  # a repeated name is a mistake that must stay visible
            kept = [inherit(item, above[name]) if name in above else item for name, item in below.items()]
            return Node([*kept, *(item for name, item in above.items() if name not in below)], over.mark)
    return over


def _all_named(node: Node) -> bool:
    return bool(node.items) and all(name_of(item) is not None for item in node.items)


def _parse(
    text: str, start: Mark, problems: Problems, *, fixed: Mark | None, most_nodes: int | None = None
) -> Node | None:
    yaml: Any = YAML(typ="safe", pure=True)
    yaml.Composer = partial(_BoundedComposer, start=start, most_nodes=most_nodes or _MOST_READ["plan"])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)  # an anchor may be used again
            root = yaml.compose(text)
    except RecursionError:
        raise start.error("nested too deeply for a plan") from None
    except YAMLError as error:
        problem = explain(error, text)
        place = fixed or Mark(start.file, problem.line or start.line)
        raise place.error(problem.text, hint=problem.hint) from None
    if root is None:
        return None
    return _Reader(start.file, fixed, problems).read(root, start)


def _too_large(place: Mark, most: int) -> PlanError:
    return place.error(f"too large: more than {most:,} keys and values", hint="split the file")


class _BoundedComposer(Composer):
    """The library's composer, which ends at a text of too many values: each costs some 50 µs."""

    def __init__(self, *arguments: Any, start: Mark, most_nodes: int, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._start, self._most, self._left = start, most_nodes, most_nodes

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose one node, if it is not one too many."""
        self._left -= 1
        if self._left < 0:
            line = self.parser.peek_event().start_mark.line + 1 if self._start.line is not None else None
            raise _too_large(Mark(self._start.file, line), self._most)
        return super().compose_node(parent, index)


class _TooLarge(PlanError):
    """Ends the reading; raised only once."""


class _Reader:
    """One pass over the library's nodes, with limits for everything that could grow without bound."""

    def __init__(self, file: str, fixed: Mark | None, problems: Problems) -> None:
        self._file = file
        self._fixed = fixed
        self._problems = problems
        self._left = _MOST_NODES
        self._scalars = YAML(typ="safe", pure=True).constructor

    def read(self, node: Any, mark: Mark, depth: int = 0) -> Node:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise _TooLarge(mark.file, mark.line, "too large for a plan, or has an alias that contains itself")
        if isinstance(node, MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return Node(self._entries(node, depth), mark)
        if isinstance(node, SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return Node(self._items(node, depth), mark)
        if isinstance(node, ScalarNode) and node.tag in _SCALAR_TAGS:
            return Node(self._scalar(node, mark), mark)
        raise mark.error(f"the tag {node.tag} has no meaning in a plan", hint="remove it")

    def _items(self, node: Any, depth: int) -> list[Node]:
        items: list[Node] = []
        for item in node.value:
            with self._kept():
                items.append(self.read(item, self._mark(item), depth + 1))
        return items

    def _entries(self, node: Any, depth: int) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for key, value in node.value:
            with self._kept():
                name = self._key(key, entries)
                entries[name] = self.read(value, self._mark(key), depth + 1)
        return entries

    def _key(self, key: Any, entries: dict[str, Node]) -> str:
        mark = self._mark(key)
        if key.tag == "tag:yaml.org,2002:merge":
            raise mark.error("'<<' has no meaning in a plan", hint="use 'extends: FILE' to inherit")
        if not isinstance(key, ScalarNode):
            hint = "write 'key: value'; placeholders need quotes, as in \"{packet}\""
            raise mark.error("a key is not text", hint=hint)
        if key.value in entries:
            first = entries[key.value].mark
            where = f" (first in line {first.line})" if first.line is not None else ""
            raise mark.error(f"the key '{key.value}' is here twice{where}", hint="remove one")
        return _whole_characters(str(key.value), mark)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Continue after a mistake, so that the next one is found too."""
        try:
            yield
        except _TooLarge:
            raise
        except PlanError as error:
            self._problems.add([error])

    def _scalar(self, node: Any, mark: Mark) -> Scalar:
        if node.tag in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp"):
            return _whole_characters(str(node.value), mark)
        try:
            value: Any = self._scalars.construct_object(node)
        except ValueError:
            raise mark.error(f"a number of {len(node.value)} characters is not a quantity") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise mark.error(f"{node.value} is not a quantity")
        return value if isinstance(value, bool | int | float) else None

    def _mark(self, node: Any) -> Mark:
        return self._fixed or Mark(self._file, node.start_mark.line + 1)


def _whole_characters(text: str, mark: Mark) -> str:
    """The text, checked for escapes that are half characters: no file and no program could contain them."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise mark.error("'\\ud800' to '\\udfff' are halves of characters", hint="write the character itself")
    return text


_MOST_NODES = 100_000
_MOST_READ = {"plan": 50_000, "scenario": 200_000}
"""Keys and values of a text at most: reading that many takes some seconds."""
_DEEPEST = 40
_MOST_OPTIONS_SHOWN = 14
_SCALAR_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "timestamp"))
