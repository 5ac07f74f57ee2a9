"""Expands axes, include and exclude to the points of a matrix, and inserts each point's values into the plan's tree.

The points are the cross product of the axes (the first varies slowest), without those that an `exclude` matches,
followed by those of `include`. An axis is a path into the plan (`clients`, `sut.cipher`, `tests.NAME.duration`) or a
free name for "{name}". Works on trees, so that a value keeps the line of its origin. Pure.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leadline.errors import PlanError
from leadline.masking import HIDDEN, is_secret_name, mask_text
from leadline.plan.hosts import LinkSpec
from leadline.plan.kinds import plan_kinds
from leadline.plan.problems import Problems
from leadline.plan.source import Location, Node, did_you_mean, name_of, plain, walk
from leadline.plan.sut import plan_systems
from leadline.plan.validation_errors import keys_of

Point = dict[str, Node]
"""Axis to value."""
MOST_CASES = 10_000


@dataclass(frozen=True, slots=True)
class Matrix:
    """The points of a plan, in order, and notes."""

    points: list[Point]
    notes: list[str]
    baselines: Sequence[tuple[int | None, str | None]] = ()
    """For each point of a plan with a ladder: the position of its plain route, or why it has none."""


def read_matrix(root: Node, problems: Problems) -> Matrix | None:
    """The points of a plan's tree; None if an axis is wrong, which becomes a problem: an axis that is neither a path
    nor used, a repeated value, no point left, too many points.
    """
    before = len(problems)
    axes = {name: node.items for name, node in root.at(("axes",)).mapping.items()} if "axes" in root.mapping else {}
    added = _points_of(root, "include")
    removed = _points_of(root, "exclude")
    known = _Names.of(root)
    problems.add(_mistaken_placeholders(root, [*axes, *(name for entry in added for name in entry)]))
    is_misnamed = len(problems) > before  # then the intended axis appears to be unused
    for name, node in root.mapping["axes"].mapping.items() if axes else ():
        with problems.caught():
            known.check(name, node, needs_use=not is_misnamed)
        with problems.caught():
            _refuse_repeated_values(name, node)
    for entry in (*added, *removed):
        for name, node in entry.items():
            with problems.caught():
                known.check(name, node, needs_use=not is_misnamed)
    with problems.caught():
        points, notes = _crossed(root, axes, removed, only_included=not axes and bool(added))
        points += _not_repeated(points, added, notes)
        if not points:
            raise _place(root, "exclude").mark.error("no case is left", hint="exclude removes all of them")
        if len(points) > MOST_CASES:
            raise _too_many(root, len(points))
        if len(problems) == before:
            return Matrix(points, notes)
    return None


def resolve(root: Node, point: Point) -> Node:
    """The plan's tree at one point: the values of its axes inserted, its placeholders replaced.

    Raises:
        PlanError: a placeholder without an axis at this point.
    """
    tree = Node({key: node for key, node in root.mapping.items() if key in _RESOLVED}, root.mark)
    for axis in sorted(point, key=lambda name: name.count(".")):  # `sut` before `sut.cipher`
        if axis.partition(".")[0] in _ROOTS:
            tree = _put(tree, _path(tree, axis, point[axis]), point[axis])
    if "interval" in root.mapping and tree.at(("tests",)).items:
        tests = [_with_default(test, "interval", root.mapping["interval"]) for test in tree.mapping["tests"].items]
        tree = tree.with_entry("tests", Node(list(tests), tree.mapping["tests"].mark))
    replaced = {key: _replaced(node, point) for key, node in tree.mapping.items() if key in _WITH_PLACEHOLDERS}
    return Node({**tree.mapping, **replaced}, root.mark)


def _path(tree: Node, axis: str, value: Node) -> Location:
    """The place of an axis' value. For a fleet, a number of clients is the fleet's count."""
    clients = tree.mapping.get("clients")
    if axis == "clients" and clients is not None and clients.mapping and not value.mapping:
        return ("clients", "count")
    return tuple(axis.split("."))


def placeholder_names(node: Node) -> set[str]:
    """The names of all placeholders in a tree."""
    return {name for below in walk(node) for name in _placeholders(below)}


def labels_of(points: Sequence[Point]) -> list[dict[str, str]]:
    """A short text for each value of every point."""
    values: dict[str, dict[str, Any]] = {}
    for point in points:
        for axis, node in point.items():
            values.setdefault(axis, {})[_canonical(node)] = plain(node)
    texts = {
        axis: _masked(axis, {key: _label(value, list(of.values())) for key, value in of.items()})
        for axis, of in values.items()
    }
    return [{axis: texts[axis][_canonical(node)] for axis, node in point.items()} for point in points]


def _masked(axis: str, labels: Mapping[str, str]) -> dict[str, str]:
    """An axis' labels without secrets; those that hide one are numbered, so that each remains its own."""
    is_secret = is_secret_name(axis.rpartition(".")[2])
    shown = {key: HIDDEN if is_secret else mask_text(label) for key, label in labels.items()}
    return {
        key: label if label == labels[key] else f"{label} #{number}"
        for number, (key, label) in enumerate(shown.items(), 1)
    }


@dataclass(frozen=True, slots=True)
class _Names:
    """The valid names of axes in one plan."""

    paths: list[str]
    used: set[str]

    @classmethod
    def of(cls, root: Node) -> _Names:
        tests = {kind.name: kind.model for kind in plan_kinds()}
        paths = [
            "clients",
            "clients.count",
            "topology",
            "sut",
            *(f"sut.{key}" for system in plan_systems() for key in keys_of(system.model)),
            *(f"sut.{path}" for written in _systems_in(root) for path in _own_paths(written)),
        ]
        paths += ["lab.emulator", "lab.cpus", "lab.gateway_cpus", *(f"lab.link.{key}" for key in keys_of(LinkSpec))]
        for test in root.mapping["tests"].items if "tests" in root.mapping else ():
            kind = plain(test).get("kind") if test.mapping else None
            models = [tests[kind]] if isinstance(kind, str) and kind in tests else list(tests.values())
            keys = {key: None for model in models for key in keys_of(model) if key not in ("name", "kind")}
            paths += [f"tests.{name_of(test)}.{key}" for key in keys]
        used = {name for node in _where_placeholders_may_be(root) for name in _placeholders(node)}
        return cls(list(dict.fromkeys(paths)), used)

    def check(self, axis: str, node: Node, *, needs_use: bool) -> None:
        """Raise PlanError for an axis without meaning; an axis without a dot may be used later."""
        if not needs_use and "." not in axis:
            return
        if axis in self.paths or axis in self.used:
            if axis.partition(".")[0] in _ROOTS and axis not in self.paths:
                raise node.mark.error(f"unknown axis '{axis}'", hint=did_you_mean(axis, self.paths))
            return
        hint = did_you_mean(axis, [*self.paths, *sorted(self.used)])
        if not hint.startswith("did"):
            hint = f'an axis is clients, a path such as sut.cipher, or a name used as "{{{axis}}}" in a test'
        raise node.mark.error(f"unknown axis '{axis}'", hint=hint)


def _systems_in(root: Node) -> list[Node]:
    """The systems under test that a plan writes out: its own, and those of an axis."""
    return [root.at(("sut",)), *root.at(("axes", "sut")).items]


def _own_paths(written: Node) -> list[str]:
    kind = plain(written).get("kind") if written.mapping else None
    system = next((system for system in plan_systems() if system.name == kind), None)
    return [] if system is None else system.axis_paths(written)


def _points_of(root: Node, key: str) -> list[Point]:
    return [dict(item.mapping) for item in root.mapping[key].items] if key in root.mapping else []


def _crossed(
    root: Node, axes: Mapping[str, list[Node]], removed: list[Point], *, only_included: bool
) -> tuple[list[Point], list[str]]:
    size = 1
    for values in axes.values():
        size *= len(values)
    if size > MOST_CASES:
        raise _too_many(root, size)
    if only_included:
        return [], []
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    for partial in removed:
        unknown = next((name for name in partial if name not in axes), None)
        if unknown is not None:
            raise partial[unknown].mark.error(
                f"exclude names '{unknown}', which is not an axis of this plan", hint=did_you_mean(unknown, axes)
            )
    hits = [[_matches(point, partial) for partial in removed] for point in points]
    notes = [
        f"exclude {index + 1} removes nothing" for index in range(len(removed)) if not any(hit[index] for hit in hits)
    ]
    return [point for point, hit in zip(points, hits, strict=True) if not any(hit)], notes


def _matches(point: Point, partial: Point) -> bool:
    return bool(partial) and all(_within(plain(node), plain(point[name])) for name, node in partial.items())


def _within(part: Any, whole: Any) -> bool:
    """Whether both are equal, or a mapping's entries are all in the other mapping."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _within(value, whole[key]) for key, value in part.items())
    return json.dumps(part, sort_keys=True) == json.dumps(whole, sort_keys=True)


def _not_repeated(points: list[Point], added: list[Point], notes: list[str]) -> list[Point]:
    seen = {_identity(point) for point in points}
    kept = []
    for index, point in enumerate(added, 1):
        if _identity(point) in seen:
            notes.append(f"include {index} repeats an existing point")
            continue
        seen.add(_identity(point))
        kept.append(point)
    return kept


def _mistaken_placeholders(root: Node, axes: list[str]) -> Iterator[PlanError]:
    names = {id(test.child("name")) for test in root.at(("tests",)).items}  # which are checked to have no placeholders
    for node in _where_placeholders_may_be(root):
        if id(node) in names:
            continue
        lonely = next(iter(node.mapping)) if len(node.mapping) == 1 else None
        if lonely in axes and node.mapping[lonely].value is None:  # YAML's own reading of {packet}
            yield node.mark.error(f'a placeholder needs quotes: "{{{lonely}}}"')
        for name in _placeholders(node):
            if name not in axes:
                hint = did_you_mean(name, axes) if axes else _NO_AXIS
                yield node.mark.error(f"unknown placeholder '{{{name}}}'", hint=hint)


def _where_placeholders_may_be(root: Node) -> list[Node]:
    parts = [node for key, node in root.mapping.items() if key in (*_WITH_PLACEHOLDERS, "axes", "include")]
    return [below for part in parts for below in walk(part)]


def _refuse_repeated_values(axis: str, node: Node) -> None:
    seen: set[str] = set()
    for value in node.items:
        if _canonical(value) in seen:
            raise value.mark.error(
                f"axes.{axis}: {plain(value)!r} is given twice", hint="remove one; use 'repeat' for several trials"
            )
        seen.add(_canonical(value))


def _too_many(root: Node, size: int) -> PlanError:
    return _place(root, "axes").mark.error(
        f"{size} cases are too many; at most {MOST_CASES}", hint="shorten an axis, or use include"
    )


def _place(root: Node, key: str) -> Node:
    return root.mapping.get(key, root)


def _put(node: Node, path: Location, value: Node) -> Node:
    if not path:
        return value
    below = node.child(path[0])
    return node.with_entry(path[0], _put(below if below is not None else Node({}, value.mark), path[1:], value))


def _with_default(node: Node, key: str, value: Node) -> Node:
    return Node({key: value, **node.value}, node.mark) if isinstance(node.value, dict) else node


def _replaced(node: Node, point: Point) -> Node:
    if isinstance(node.value, dict):
        return Node(
            {key: below if key == "name" else _replaced(below, point) for key, below in node.value.items()}, node.mark
        )
    if isinstance(node.value, list):
        return Node([_replaced(item, point) for item in node.value], node.mark)
    if not isinstance(node.value, str):
        return node
    whole = _PLACEHOLDER.fullmatch(node.value)
    if whole is not None and whole.group("name"):
        return _answer(whole.group("name"), node, point)
    return Node(_PLACEHOLDER.sub(lambda match: _text_for(match, node, point), node.value), node.mark)


def _text_for(match: re.Match[str], node: Node, point: Point) -> str:
    if match.group("kept"):
        return f"{{{match.group('kept')}}}"
    value = _answer(match.group("name"), node, point)
    if isinstance(value.value, dict | list):
        raise node.mark.error(f"'{{{match.group('name')}}}' is a list or mapping and cannot be part of a text")
    return _label(value.value, [])


def _answer(name: str, node: Node, point: Point) -> Node:
    if name not in point:
        raise node.mark.error(f"'{{{name}}}' has no value at every point", hint=f"give '{name}' in each include")
    value = point[name]
    if any(name in _placeholders(below) for below in walk(value)):
        raise value.mark.error(f"axis '{name}' stands for itself")
    others = {axis: entry for axis, entry in point.items() if axis != name}
    return _replaced(value, others)


def _placeholders(node: Node) -> list[str]:
    if not isinstance(node.value, str):
        return []
    return [match.group("name") for match in _PLACEHOLDER.finditer(node.value) if match.group("name")]


def _label(value: Any, others: list[Any]) -> str:
    if isinstance(value, dict):
        kind = value.get("kind")
        alike = [other for other in others if isinstance(other, dict) and other.get("kind") == kind]
        differing = {
            key: part for key, part in value.items() if key != "kind" and any(o.get(key) != part for o in alike)
        }
        details = ",".join(f"{key}={_label(part, [])}" for key, part in differing.items())
        return f"{kind}({details})" if kind and details else str(kind or details or _named(value))
    if isinstance(value, list):
        return ",".join(_label(part, []) for part in value) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def _named(value: dict[str, Any]) -> str:
    """A mapping without a kind as text: a fleet, a program, or its entries."""
    if value.get("fleet") is True:
        return f"fleet of {value['count']}" if value.get("count") is not None else "fleet"
    command = value.get("command")
    if isinstance(command, list) and command:
        return str(command[0])
    return ",".join(f"{key}={_label(part, [])}" for key, part in value.items())


def _canonical(node: Node) -> str:
    return json.dumps(plain(node), sort_keys=True)


def _identity(point: Point) -> str:
    return json.dumps({name: plain(node) for name, node in point.items()}, sort_keys=True)


_NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
_PLACEHOLDER = re.compile(rf"\{{\{{(?P<kept>{_NAME})\}}\}}|\{{(?P<name>{_NAME})\}}", re.ASCII)
"""`{name}`; `{{name}}` is literal text in single braces; other braces (JSON in a body) are literal too."""
_NO_AXIS = 'the plan has no axes; write {{name}} for the text "{name}"'
_ROOTS = frozenset({"clients", "topology", "sut", "lab", "tests"})
_WITH_PLACEHOLDERS = ("sut", "lab", "tests")
_RESOLVED = frozenset({*_ROOTS, "hosts"})
