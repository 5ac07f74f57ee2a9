"""A plan's file to a checked `Plan`: read, inherit, override, expand, check every case. The only I/O of this package.

Of several mistakes the first is reported, as one line with file and line (or the `--set` argument).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from leadline.errors import PlanError
from leadline.plan.complaints import first_complaint
from leadline.plan.document import FRAME_KEYS, POINT_KEYS, PlanDocument, PlanFrame, PointSpec
from leadline.plan.fields import validate_input
from leadline.plan.hosts import LabSpec
from leadline.plan.material import MOST_BYTES, Outside, Written
from leadline.plan.matrix import labels_of, read_matrix, resolve
from leadline.plan.model import Case, Plan
from leadline.plan.overrides import apply_overrides
from leadline.plan.source import Node, did_you_mean, inherit, name_of, parse_plan_text, plain
from leadline.plan.sut import GivenSut
from leadline.plan.targets import Target, read_target
from leadline.plan.workloads import Test


def load_plan(path: Path, overrides: Sequence[str] = ()) -> Plan:
    """Read a plan and everything that it extends, apply `--set` overrides, and check it whole.

    Raises:
        PlanError: the first mistake, with file and line, or the override that made it.
    """
    text = _read(path)
    root = apply_overrides(_inherited(parse_plan_text(text, str(path)), path, ()), overrides)
    root = _without_nulls(root)
    frame = _checked_frame(root)
    _refuse_placeholders_in_names(root)
    matrix = read_matrix(root)
    _refuse_axes_of_given_systems(root)
    specs = [_checked_point(resolve(root, point)) for point in matrix.points]
    _refuse_differing_given_systems(root, specs)
    labels = labels_of(matrix.points)
    width = max(2, len(str(len(specs))))
    cases = tuple(
        Case(
            id=f"c{index:0{width}d}",
            parameters=_given_label(spec) | {axis: plain(value) for axis, value in point.items()},
            labels=_given_label(spec) | label,
            topology=spec.topology,
            clients=spec.client_count,
            fleet=spec.fleet,
            link=(spec.lab or LabSpec()).link if spec.hosts is None else None,
            hosts=spec.hosts,
            sut=spec.sut,
            tests=spec.counted_tests,
            profile=frame.profile,
        )
        for index, (point, label, spec) in enumerate(zip(matrix.points, labels, specs, strict=True), 1)
    )
    document = plain(root)
    return Plan(
        path=path,
        text=text,
        overrides=tuple(overrides),
        document=document,
        name=frame.name,
        description=frame.description,
        cases=cases,
        axes=_axes(labels),
        repeat=frame.repeat,
        seed=frame.seed if frame.seed is not None else _derived_seed(document),
        seed_is_derived=frame.seed is None,
        targets=_targets(root, cases[0].tests),
        observe_period_ms=frame.observe.period_ms,
        limits=frame.limits,
        notes=tuple(matrix.notes),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PlanError(path, None, "there is no such file", hint="give the path of a plan in YAML") from None
    except UnicodeDecodeError:
        raise PlanError(path, None, "this is not text in UTF-8", hint="give the path of a plan in YAML") from None
    except OSError as error:
        raise PlanError(path, None, f"cannot be read: {error.strerror or error}") from None


def read_material(path: Path) -> bytes:
    """A file that a plan or a command line refers to.

    Raises:
        ValueError: it cannot be read, or is larger than an agent can be sent.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path} is too large; at most {MOST_BYTES // 2**20} MiB")
    return content


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ValueError(f"the environment has no {name}")
    return value


HERE = Outside(read_material, _variable)
"""This machine's files and environment."""


def _inherited(root: Node, path: Path, below: tuple[Path, ...]) -> Node:
    """The tree with all that it extends laid under it; `extends` itself is gone then."""
    source = root.mapping.get("extends")
    own = Node({key: node for key, node in root.mapping.items() if key != "extends"}, root.mark)
    if source is None or source.value is None:
        return own
    if not isinstance(source.value, str):
        raise source.mark.error("extends: this is not a path", hint="write it as in 'extends: base.yaml'")
    base_path = path.parent / source.value
    chain = (*below, path.resolve())
    if base_path.resolve() in chain:
        circle = " -> ".join(step.name for step in (*chain, base_path))
        raise source.mark.error(f"extends: the plans extend each other in a circle: {circle}")
    try:
        text = _read(base_path)
    except PlanError as error:
        raise source.mark.error(f"extends: {error.message}", hint="the path is relative to this file") from None
    base = _inherited(parse_plan_text(text, str(base_path)), base_path, chain)
    rival = {"hosts": "lab", "lab": "hosts"}
    replaced = {rival[key] for key in own.mapping if key in rival} - set(own.mapping)
    return inherit(Node({key: node for key, node in base.mapping.items() if key not in replaced}, base.mark), own)


def _without_nulls(root: Node) -> Node:
    """Null at the top, or for an axis, takes away what was inherited or written before."""
    entries = {key: node for key, node in root.mapping.items() if node.value is not None or key not in _KEYS}
    axes = entries.get("axes")
    if axes is not None and axes.mapping:
        kept = {name: node for name, node in axes.mapping.items() if node.value is not None}
        entries["axes"] = Node(kept, axes.mark)
    return Node(entries, root.mark)


def _checked_frame(root: Node) -> PlanFrame:
    unknown = next((key for key in root.mapping if key not in _KEYS), None)
    if unknown is not None:
        hint = did_you_mean(unknown, [str(field.validation_alias or name) for name, field in _FIELDS])
        raise root.mapping[unknown].mark.error(f"unknown key '{unknown}'", hint=hint)
    if "extends" in root.mapping:
        raise root.mapping["extends"].mark.error("extends cannot be set from outside of a plan's file")
    frame_root = Node({key: node for key, node in root.mapping.items() if key in FRAME_KEYS}, root.mark)
    try:
        return validate_input(PlanFrame, plain(frame_root))
    except ValidationError as error:
        raise first_complaint(error, PlanFrame, frame_root) from None


def _refuse_placeholders_in_names(root: Node) -> None:
    for test in root.at(("tests",)).items:
        if "{" in (name_of(test) or ""):
            raise test.at(("name",)).mark.error(
                "a test's name is the same in every case", hint="tables show the axes beside it"
            )


def _refuse_axes_of_given_systems(root: Node) -> None:
    """What stands on given hosts stays as it is from case to case, whatever an axis calls it."""
    if "hosts" not in root.mapping:
        return
    nothing = Node({}, root.mark)
    points = (root.mapping.get("axes", nothing), *root.mapping.get("include", nothing).items)
    for axis, node in ((axis, node) for point in points for axis, node in point.mapping.items()):
        if axis == "sut" or axis.startswith("sut."):
            raise node.mark.error(
                f"'{axis}' cannot differ between cases: given hosts are measured as they are",
                hint='write a plan for each system, with sut: {kind: given, label: "..."}',
            )


def _refuse_differing_given_systems(root: Node, specs: Sequence[PointSpec]) -> None:
    """The same where a placeholder in `sut` makes the difference."""
    if any(spec.hosts is not None for spec in specs) and any(spec.sut != specs[0].sut for spec in specs):
        raise root.at(("sut",)).mark.error(
            "sut: it cannot differ between cases: given hosts are measured as they are",
            hint="write a plan for each system",
        )


def _given_label(spec: PointSpec) -> dict[str, str]:
    """What a plan calls the system on given hosts, among the parameters that every result carries."""
    return {"sut": spec.sut.label} if isinstance(spec.sut, GivenSut) else {}


def _checked_point(tree: Node) -> PointSpec:
    try:
        return validate_input(PointSpec, _as_written(tree), HERE)
    except ValidationError as error:
        raise first_complaint(error, PointSpec, tree) from None


def _as_written(node: Node) -> Any:
    """The tree as plain data, whose texts know the folder of the file that they stand in."""
    if isinstance(node.value, dict):
        return {key: _as_written(entry) for key, entry in node.value.items()}
    if isinstance(node.value, list):
        return [_as_written(item) for item in node.value]
    if isinstance(node.value, str):
        return Written.at(node.value, Path(node.mark.file).parent if node.mark.line is not None else Path())
    return node.value


def _targets(root: Node, tests: tuple[Test, ...]) -> tuple[Target, ...]:
    kinds = {test.name: test.kind for test in tests}
    return tuple(read_target(node, kinds) for node in root.at(("targets",)).items)


def _axes(points: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    axes: dict[str, dict[str, None]] = {}
    for point in points:
        for axis, label in point.items():
            axes.setdefault(axis, {})[label] = None
    return {axis: tuple(labels) for axis, labels in axes.items()}


def _derived_seed(document: dict[str, Any]) -> int:
    """From the content, so that the same plan has the same order everywhere."""
    content = json.dumps(document, sort_keys=True, ensure_ascii=True)
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:4], "big")


_KEYS = FRAME_KEYS | POINT_KEYS
_FIELDS = list(PlanDocument.model_fields.items())
