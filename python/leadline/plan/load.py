"""Reads a plan's file to a validated `Plan`: inherits, overrides, expands, and checks every case. `regular_files`
does the reading.

Every mistake is reported in one line with file and line (or the `--set` argument). Conflicts between keys are checked
only when each key alone is valid.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from leadline.errors import PlanError
from leadline.plan.baseline import with_baselines
from leadline.plan.document import FRAME_KEYS, POINT_KEYS, PlanDocument, PlanFrame, PointSpec, follow_registries
from leadline.plan.external_inputs import MOST_BYTES, MOST_SCENARIO_BYTES, ExternalReader, PlanText
from leadline.plan.field_types import validate_input
from leadline.plan.hosts import LabSpec, Topology
from leadline.plan.ladder import CaseLadder, all_rungs, with_ladder_tests, with_plain_routes
from leadline.plan.matrix import Matrix, labels_of, read_matrix, resolve
from leadline.plan.model import Case, Plan
from leadline.plan.overrides import apply_overrides
from leadline.plan.problems import Problems
from leadline.plan.regular_files import NotRegular, read_bounded, read_regular
from leadline.plan.source import (
    Mark,
    Node,
    did_you_mean,
    inherit,
    name_of,
    nearest,
    parse_plan_text,
    parse_value,
    plain,
)
from leadline.plan.sut import system_of
from leadline.plan.targets import Target, read_target
from leadline.plan.validation_errors import plan_errors
from leadline.registry import KINDS, SYSTEMS


def load_plan(
    path: Path,
    overrides: Sequence[str] = (),
    targets: Sequence[str] = (),
    hosts: Callable[[Topology], dict[str, Any]] | None = None,
) -> Plan:
    """Read a plan and everything that it extends, apply `--set` overrides, and validate it. `targets`, if given,
    replace the plan's; so does what `hosts` returns for the plan's topology, in place of `hosts` or `lab`.

    Raises:
        PlanError: the first mistake, with file and line or override; it contains all further ones.
    """
    follow_registries()
    problems = Problems()
    text = read_plan_text(path)
    written = parse_plan_text(text, str(path), problems)
    _refuse_scenario(written, path)
    root = _inherited(written, path, (), problems)
    root = _without_nulls(apply_overrides(root, overrides, problems))
    if hosts is not None:
        root, written_hosts = _on_hosts(root, hosts)
        overrides = (*overrides, f"hosts={json.dumps(written_hosts)}")
    if targets:
        given = [Node(target, Mark(f"--target {target!r}", None)) for target in targets]
        root = root.with_entry("targets", Node(list(given), Mark("--target", None)))
        overrides = (*overrides, f"targets={json.dumps(list(targets))}")
    # Each file is read once, even if several cases name it: they share its content.
    external = ExternalReader(cache(read_external_file), _variable, cache(_read_scenario_file))
    root = with_ladder_tests(root)
    frame, specs, matrix = _checked(root, problems, external)
    judged = _targets(root, specs, problems)
    problems.raise_any()
    labels = labels_of(matrix.points)
    width = max(2, len(str(len(specs))))
    names = [f"c{index:0{width}d}" for index in range(1, len(specs) + 1)]
    cases = tuple(
        Case(
            id=name,
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
            ladder=_case_ladder(frame, spec, pair, names),
            split_cpus=spec.hosts is None and (spec.lab or LabSpec()).cpus == "split",
            gateway_cpus=(spec.lab or LabSpec()).gateway_cpus if spec.hosts is None else None,
            idle_poll=spec.hosts is None and (spec.lab or LabSpec()).idle == "poll",
            emulator=spec.lab.emulator if spec.lab is not None else None,
        )
        for name, point, label, spec, pair in zip(names, matrix.points, labels, specs, matrix.baselines, strict=True)
    )
    cases, unmatched = with_baselines(root.mapping.get("baseline"), cases)
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
        repeat=frame.repeat if isinstance(frame.repeat, int) else frame.repeat.min,
        until=None if isinstance(frame.repeat, int) else frame.repeat,
        seed=frame.seed if frame.seed is not None else _derived_seed(document),
        seed_is_derived=frame.seed is None,
        targets=judged,
        observe_period_ms=frame.observe.period_ms,
        limits=frame.limits,
        tolerate=frame.tolerate,
        notes=(*matrix.notes, *unmatched),
    )


def _on_hosts(root: Node, hosts: Callable[[Topology], dict[str, Any]]) -> tuple[Node, dict[str, Any]]:
    """The plan on other hosts than its own, and those hosts as data."""
    named = root.mapping.get("topology")
    topology: Topology = "site-to-site" if named is not None and named.value == "site-to-site" else "remote-access"
    found = hosts(topology)
    own = root.mapping.get("hosts")
    if own is not None and "change_local" in own.mapping:
        found = {**found, "change_local": own.mapping["change_local"].value}
    mark = Mark("--hosts", None)
    rest = Node({key: node for key, node in root.mapping.items() if key != "lab"}, root.mark)
    return rest.with_entry("hosts", parse_value(json.dumps(found), mark)), found


def read_plan_text(path: Path) -> str:
    """The text of a plan's file.

    Raises:
        PlanError: it is not a regular file, too large, or not text.
    """
    try:
        text = read_regular(path, MOST_PLAN_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise PlanError(path, None, "there is no such file", hint="give the path of a plan in YAML") from None
    except UnicodeDecodeError:
        raise PlanError(path, None, "this is not text in UTF-8", hint="give the path of a plan in YAML") from None
    except NotRegular as error:
        raise PlanError(path, None, f"this {error}", hint="give the path of a plan in YAML") from None
    except OSError as error:
        raise PlanError(path, None, f"cannot be read: {error.strerror or error}") from None
    if text.lstrip().startswith("<"):
        hint = f"run JMeter's plans by `leadline scenario {path}`"
        raise PlanError(path, None, "this is XML, not a plan in YAML", hint=hint)
    return text


def _refuse_scenario(root: Node, path: Path) -> None:
    """Raise PlanError if this is a scenario, which has another command."""
    if _KEYS_OF_SCENARIOS & root.mapping.keys() and not {"tests", "sut", "extends"} & root.mapping.keys():
        raise PlanError(path, None, "this is a scenario, not a plan", hint=f"run it by `leadline scenario {path}`")


def read_external_file(path: Path, *, may_be_pipe: bool = False, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a file that a plan or a command line refers to; a command line's file may be a pipe, as in a
    shell's `<(...)`.

    Raises:
        ValueError: it cannot be read, or is too large to send to an agent.
    """
    try:
        return read_bounded(path, most_bytes) if may_be_pipe else read_regular(path, most_bytes)
    except NotRegular as error:
        raise ValueError(f"{path} {error}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None


def _read_scenario_file(path: Path) -> bytes:
    return read_external_file(path, most_bytes=MOST_SCENARIO_BYTES)


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ValueError(f"the environment has no {name}")
    return value


def _inherited(root: Node, path: Path, below: tuple[Path, ...], problems: Problems) -> Node:
    """The tree merged over everything that it extends, without `extends` itself."""
    source = root.mapping.get("extends")
    own = Node({key: node for key, node in root.mapping.items() if key != "extends"}, root.mark)
    if source is None or source.value is None:
        return own
    with problems.caught():
        base = _base(source, path, below, problems)
        rival = {"hosts": "lab", "lab": "hosts"}
        replaced = {rival[key] for key in own.mapping if key in rival} - set(own.mapping)
        return inherit(Node({key: node for key, node in base.mapping.items() if key not in replaced}, base.mark), own)
    return own


def _base(source: Node, path: Path, below: tuple[Path, ...], problems: Problems) -> Node:
    """The tree of the plan that the plan at `path` extends. Raises PlanError."""
    if not isinstance(source.value, str):
        raise source.mark.error("extends: this is not a path", hint="write it as in 'extends: base.yaml'")
    base_path = path.parent / source.value
    chain = (*below, path.resolve())
    if base_path.resolve() in chain:
        circle = " -> ".join(step.name for step in (*chain, base_path))
        raise source.mark.error(f"extends: the plans extend each other in a circle: {circle}")
    if len(chain) > _LONGEST_CHAIN:
        raise source.mark.error(f"extends: a chain of more than {_LONGEST_CHAIN} plans", hint="merge some of them")
    try:
        text = read_plan_text(base_path)
    except PlanError as error:
        raise source.mark.error(f"extends: {error.message}", hint="the path is relative to this file") from None
    return _inherited(parse_plan_text(text, str(base_path), problems), base_path, chain, problems)


def _without_nulls(root: Node) -> Node:
    """Null at the top level, or for an axis, removes an inherited or earlier value."""
    entries = {key: node for key, node in root.mapping.items() if node.value is not None or key not in _KEYS}
    axes = entries.get("axes")
    if axes is not None and axes.mapping:
        kept = {name: node for name, node in axes.mapping.items() if node.value is not None}
        entries["axes"] = Node(kept, axes.mark)
    return Node(entries, root.mark)


def _checked(root: Node, problems: Problems, external: ExternalReader) -> tuple[PlanFrame, list[PointSpec], Matrix]:
    """Validate the parts of the plan. Mistakes become problems; without problems the result is complete.

    If a mistake prevents the expansion of the matrix, the part that all points share is checked for mistakes that
    exist at every point.
    """
    is_read = len(problems) == 0
    unknown = [key for key in root.mapping if key not in _KEYS]
    known = [str(field.validation_alias or name) for name, field in _FIELDS]
    problems.add(root.mapping[key].mark.error(f"unknown key '{key}'", hint=did_you_mean(key, known)) for key in unknown)
    if "extends" in root.mapping:
        problems.add([root.mapping["extends"].mark.error("extends can only be set in a plan's file")])
    meant = [key for word in unknown if (key := nearest(word, known)) is not None]
    frame, wrong = _checked_frame(root, meant, problems, is_partial=not is_read)
    root = Node({key: node for key, node in root.mapping.items() if key not in wrong}, root.mark)
    is_matrix_known = is_read and not {*wrong, *meant} & _OF_THE_MATRIX
    matrix = read_matrix(root, problems) if is_matrix_known else None
    of_given = list(_axes_of_given_systems(root))
    problems.add(of_given)
    if matrix is None or of_given:
        shared = Node({key: node for key, node in root.mapping.items() if key in POINT_KEYS}, root.mark)
        _checked_point(shared, meant, problems, external, is_partial=True)
        return frame, [], Matrix([], [])
    points, baselines = with_plain_routes(root, matrix.points)
    matrix = Matrix(points, matrix.notes, baselines)
    specs = []
    for point in matrix.points:
        with problems.caught():
            specs += _checked_point(resolve(root, point), meant, problems, external)
    problems.add(_differing_given_systems(root, specs))
    problems.add(_profiles_of_given_systems(root, frame, specs))
    return frame, specs, matrix


def _case_ladder(
    frame: PlanFrame, spec: PointSpec, pair: tuple[int | None, str | None], names: Sequence[str]
) -> CaseLadder | None:
    """The ladder of a case, whose baseline is at a position or missing for a reason."""
    if frame.ladder is None:
        return None
    tests = {test.name for test in spec.tests}
    rungs = tuple(rung.test for _, rung in all_rungs() if rung.test in tests)
    number, why = pair
    baseline = None if number is None else names[number]
    if spec.hosts is not None:
        return CaseLadder(rungs, baseline, why)
    mtu_bytes = (spec.lab or LabSpec()).link.mtu_bytes
    packets = system_of(spec.sut).packets(spec.sut, mtu_bytes)
    largest_bytes, overhead_bytes = packets or (None, None)
    return CaseLadder(rungs, baseline, why, largest_bytes, overhead_bytes)


def _checked_frame(root: Node, meant: list[str], problems: Problems, *, is_partial: bool) -> tuple[PlanFrame, set[str]]:
    """The frame, and the keys with invalid values."""
    frame_root = Node({key: node for key, node in root.mapping.items() if key in FRAME_KEYS}, root.mark)
    try:
        return validate_input(PlanFrame, plain(frame_root)), set()
    except ValidationError as error:
        problems.add(plan_errors(error, PlanFrame, frame_root, meant=meant, is_partial=is_partial))
        wrong = {str(details["loc"][0]) for details in error.errors(include_url=False) if details["loc"]}
        return PlanFrame.model_construct(), wrong


def _axes_of_given_systems(root: Node) -> Iterator[PlanError]:
    """Errors for axes on a given system: it is the same system in every case."""
    if "hosts" not in root.mapping:
        return
    nothing = Node({}, root.mark)
    points = (root.mapping.get("axes", nothing), *root.mapping.get("include", nothing).items)
    for axis, node in ((axis, node) for point in points for axis, node in point.mapping.items()):
        systems = [root.at(("sut",))] if axis.startswith("sut.") else [*node.items, node] if axis == "sut" else []
        if any(_is_given(system) for system in systems):
            yield node.mark.error(
                f"'{axis}' cannot differ between cases: a given system is measured as it is",
                hint='write a plan for each system, with sut: {kind: given, label: "..."}',
            )


def _is_given(system: Node) -> bool:
    """Whether a system, as it is written, stands on its hosts already."""
    kind = system.mapping["kind"].value if "kind" in system.mapping else system.value
    return isinstance(kind, str) and kind in SYSTEMS and bool(SYSTEMS.get(kind).on_given_hosts)


def _differing_given_systems(root: Node, specs: Sequence[PointSpec]) -> Iterator[PlanError]:
    """An error for given systems that differ between cases, by placeholders in `sut`."""
    is_given = any(spec.hosts is not None and system_of(spec.sut).on_given_hosts for spec in specs)
    if is_given and any(spec.sut != specs[0].sut for spec in specs):
        yield root.at(("sut",)).mark.error(
            "sut: it cannot differ between cases: a given system is measured as it is",
            hint="write a plan for each system",
        )


def _profiles_of_given_systems(root: Node, frame: PlanFrame, specs: Sequence[PointSpec]) -> Iterator[PlanError]:
    """An error for `profile` of a given system: it is unknown which processes are its own."""
    if any(spec.hosts is not None and system_of(spec.sut).on_given_hosts for spec in specs) and frame.profile:
        yield root.at(("profile",)).mark.error(
            "profile: on given hosts the processes of a given system are unknown", hint="leave it out"
        )


def _given_label(spec: PointSpec) -> dict[str, str]:
    """The plan's label of the system on given hosts, which every result carries as a parameter."""
    return {"sut": spec.sut.given_label} if spec.sut.given_label is not None else {}


def _checked_point(
    tree: Node, meant: list[str], problems: Problems, external: ExternalReader, *, is_partial: bool = False
) -> list[PointSpec]:
    """The point, in a list; an empty list if it is invalid."""
    try:
        return [validate_input(PointSpec, _as_written(tree), external)]
    except ValidationError as error:
        problems.add(plan_errors(error, PointSpec, tree, meant=meant, is_partial=is_partial))
        return []


def _as_written(node: Node) -> Any:
    """The tree as plain data; its texts carry the folder of their file."""
    if isinstance(node.value, dict):
        return {key: _as_written(entry) for key, entry in node.value.items()}
    if isinstance(node.value, list):
        return [_as_written(item) for item in node.value]
    if isinstance(node.value, str):
        return PlanText.at(node.value, Path(node.mark.file).parent if node.mark.line is not None else Path())
    return node.value


def _targets(root: Node, specs: list[PointSpec], problems: Problems) -> tuple[Target, ...]:
    kinds = {test.name: test.kind for test in specs[0].tests} if specs else _kinds_as_written(root)
    found: list[Target] = []
    for node in root.at(("targets",)).items:
        with problems.caught():
            if isinstance(node.value, str) and kinds:
                found.append(read_target(node, kinds))
    for index, test in enumerate(specs[0].tests if specs else ()):
        for text in test.own_targets:
            mark = root.at(("tests", index)).mark
            with problems.caught():
                found.append(read_target(Node(f"{test.name}.{text}", mark), kinds))
    return tuple(found)


def _kinds_as_written(root: Node) -> dict[str, str]:
    """The kinds of tests by name, if all of them are readable despite other mistakes; else empty."""
    kinds = {}
    for test in root.at(("tests",)).items:
        name, kind = name_of(test), test.at(("kind",)).value
        if name is None or not isinstance(kind, str) or kind not in KINDS:
            return {}
        kinds[name] = kind
    return kinds


def _axes(points: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    axes: dict[str, dict[str, None]] = {}
    for point in points:
        for axis, label in point.items():
            axes.setdefault(axis, {})[label] = None
    return {axis: tuple(labels) for axis, labels in axes.items()}


def _derived_seed(document: dict[str, Any]) -> int:
    """A seed from the content, so that the same plan has the same order everywhere."""
    content = json.dumps(document, sort_keys=True, ensure_ascii=True)
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:4], "big")


MOST_PLAN_BYTES = 256 * 1024
"""Maximum size of a plan; reading YAML of this size takes seconds."""
_LONGEST_CHAIN = 20
_KEYS_OF_SCENARIOS = frozenset({"flow", "get", "post", "groups", "thresholds"})
_OF_THE_MATRIX = frozenset({"axes", "include", "exclude", "ladder"})
_KEYS = FRAME_KEYS | POINT_KEYS
_FIELDS = list(PlanDocument.model_fields.items())
