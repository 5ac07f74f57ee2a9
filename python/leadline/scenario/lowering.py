"""Lowers a whole scenario to the agent's plan: variables, data, groups of users with their loads and flows.

Pure: `files` gives the contents of the files that the scenario names.
"""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from leadline.errors import PlanError
from leadline.masking import is_secret_name
from leadline.plan.problems import Problems
from leadline.plan.source import Node
from leadline.scenario.arrivals import LoweredLoad, lower_load
from leadline.scenario.expressions import Value
from leadline.scenario.functions import template
from leadline.scenario.load_models import GatlingLoad, Load
from leadline.scenario.lower_expressions import Lowered, Names
from leadline.scenario.lower_hosts import FixedAddress, list_fixed_addresses
from leadline.scenario.lower_requests import RequestLowering, Scope
from leadline.scenario.lower_steps import StepLowering, located
from leadline.scenario.model import DataSource, Group, Scenario
from leadline.scenario.request_models import Defaults
from leadline.scenario.step_models import RequestStep
from leadline.scenario.thresholds import Threshold, check_known_tags, read_threshold
from leadline.scenario.unset_variables import UnsetVariable, find_unset_variables
from leadline.scenario.values import duration

MOST_ROWS = 1_000_000
_NO_VALUE = re.compile(r"the parameter '.*' has no value")


@dataclass(frozen=True, slots=True)
class LoweredScenario:
    """A scenario for the agent."""

    plan: Lowered
    """As JSON of the agent's `ScenarioPlan`."""
    longest_ms: int | None
    """The longest time of its main groups, without their grace; None if one has no limit of time."""
    verifies_tls: bool
    """Whether certificates of servers are checked."""
    thresholds: tuple[tuple[Threshold, bool, int], ...]
    """Each with whether the test ends when it is missed, and the ms before that may happen."""
    users: int
    """Users at most, as far as it is known."""
    unset: tuple[UnsetVariable, ...]
    """Variables that it reads and nothing sets."""
    hosts: tuple[FixedAddress, ...]
    """Addresses that are used instead of DNS."""
    has_end: bool
    """Whether it ends without a limit of time from outside."""


def lower(
    scenario: Scenario,
    root: Node,
    read_file: Callable[[str], bytes],
    parameters: Mapping[str, str] | None = None,
) -> LoweredScenario:
    """The scenario for the agent; `root` is the tree that it was read from.

    Raises:
        PlanError: parts of it have no meaning, each with its file and line.
    """
    return _Lowering(scenario, root, read_file, parameters or {}).lower()


def _parts(part: object) -> Iterator[Lowered]:
    """A part of the agent's plan and all mappings in it."""
    pending = [part]
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            pending += one
        elif isinstance(one, dict):
            yield one
            pending += one.values()


def _tag_values(part: object) -> dict[str, set[str]]:
    """The values of each tag in a part of the agent's plan; of requests also their names, if all have one."""
    found: dict[str, set[str]] = {}
    names: set[str | None] = set()
    for one in _parts(part):
        for name, value in one.get("tags", {}).items():
            found.setdefault(name, set()).add(value)
        if isinstance(action := one.get("action"), dict) and action.get("kind") == "request":
            names.add(one.get("label"))
    if names and None not in names:
        found["name"] = {name for name in names if name is not None}
    return found


def _variable_names(part: object) -> Iterator[str]:
    """Names of all variables that a part of the agent's plan sets: at the beginning, from data, in steps."""
    if isinstance(part, list):
        for item in part:
            yield from _variable_names(item)
    elif isinstance(part, dict):
        yield from part.get("columns", ())
        for key, inner in part.items():
            if key == "variable":
                yield inner
            elif key == "variables":
                yield from (variable["name"] for variable in inner)
            elif key != "rows":
                yield from _variable_names(inner)


class _Lowering:
    def __init__(
        self, scenario: Scenario, root: Node, read_file: Callable[[str], bytes], parameters: Mapping[str, str]
    ) -> None:
        self._scenario = scenario
        self._root = root
        self._read_file = read_file
        keeps = scenario.unset_variables == "keep"
        constants: dict[str, Value] = {}
        for name, text in scenario.variables.items():
            with located(root.at(("variables", name))):
                try:
                    constants[name] = Names(parameters, constants, read_file=read_file).text(template(text or ""))
                except ValueError:
                    continue  # it is computed by the agent
        self._names = Names(parameters, constants, keeps, frozenset(scenario.secrets), read_file)
        self._requests = RequestLowering(self._names, read_file)
        self._problems = Problems()
        named = (read_threshold(metric, rules[0].threshold) for metric, rules in scenario.thresholds.items() if rules)
        # Tags by place split the figures of a name, so they are given only where a threshold names them.
        self._given_tags = frozenset(tag for one in named for tag in one.tags)

    def lower(self) -> LoweredScenario:
        scenario = self._scenario
        groups = scenario.groups or (self._only_group(),)
        feeders: list[Lowered] = []
        for index, source in enumerate(scenario.data):
            with self._problems.caught():
                feeders.append(self._feeder(source, self._root.at(("data", index))))
        loads: list[tuple[Group, LoweredLoad]] = []
        populations = []
        for index, group in enumerate(groups):
            node = self._root.at(("groups", index)) if scenario.groups else self._root
            with self._problems.caught():
                lowered, load = self._population(group, node, groups[:index])
                populations.append(lowered)
                loads.append((group, load))
        variables = self._variables(scenario.variables)
        self._raise_any()
        secret = [{"name": name, "value": [text]} for name, text in self._names.secret_parameters.items()]
        plan = {
            "name": scenario.name,
            "variables": secret + variables,
            "feeders": feeders,
            "files": [
                {"name": name, "content_base64": base64.b64encode(content).decode()}
                for name, content in self._requests.files.items()
            ],
            "populations": populations,
            "targets": [target.rstrip("/") for target in scenario.targets],
        }
        unset = find_unset_variables(plan)
        if unset and scenario.unset_variables == "fail":
            self._raise_unset(unset)
        self._name(plan)
        thresholds = self._thresholds(_tag_values(populations))
        requests = [one for one in _parts(populations) if one.get("kind") == "request"]
        with self._problems.caught(), located(self._root.at(("hosts",))):
            hosts = list_fixed_addresses(scenario.hosts, requests, self._names)
        self._raise_any()
        masked = {*scenario.secrets, *filter(is_secret_name, _variable_names(plan)), *self._names.secret_parameters}
        plan["masked"] = sorted(masked)
        return LoweredScenario(
            plan,
            _longest_ms(loads, serial=scenario.serial),
            verifies_tls=scenario.http.verify is not False and all(group.http.verify is not False for group in groups),
            thresholds=thresholds,
            hosts=hosts,
            unset=unset,
            has_end=all(_has_end(load.arrivals) for group, load in loads if group.phase == "main"),
            users=sum(_most_users(load.arrivals) for group, load in loads if group.phase == "main"),
        )

    def _name(self, plan: Lowered) -> None:
        """Compute the names in results. A placeholder that is not the same for all users stays as it is written."""
        changing = set(_variable_names([plan["feeders"], plan["populations"]]))
        known = self._names.constants.items()
        constants = {name: one for name, one in known if name not in changing and not self._names.is_secret(name)}
        names = Names(self._names.parameters, constants, secrets=self._names.secrets, hides=True)

        def named(text: str) -> str:
            try:
                return names.text(template(text)) if "${" in text else text
            except ValueError:
                return text.replace("$${", "${")

        for part in _parts(plan["populations"]):
            if part.get("label") is not None:
                part["label"] = named(part["label"])
            if "group" in part.get("tags", {}):
                part["tags"]["group"] = named(part["tags"]["group"])

    def _only_group(self) -> Group:
        """The group of a scenario without groups."""
        scenario = self._scenario
        short = ("rate", "users", "iterations", "duration")
        given = {key: getattr(scenario, key) for key in short if getattr(scenario, key) is not None}
        flow = scenario.flow
        if not flow:
            way = "get" if scenario.get is not None else "post"
            request = {way: getattr(scenario, way), **({"body": scenario.body} if scenario.body is not None else {})}
            flow = (RequestStep(**request),)
        return Group(name=scenario.name, load=scenario.load or Load(**given), flow=flow)

    def _population(self, group: Group, node: Node, earlier: tuple[Group, ...]) -> tuple[Lowered, LoweredLoad]:
        scenario = self._scenario
        shared = Defaults(headers=scenario.headers)
        scope = Scope.of(group.base or scenario.base, shared, scenario.http, group.http)
        steps = StepLowering(self._names, self._requests, scope, self._problems, self._given_tags)
        given = {"scenario": group.name} if "scenario" in self._given_tags else {}
        before, flow, afterwards = (
            steps.steps(part, node.child(key) or Node(None, node.mark))
            for key, part in (("before", group.before), ("flow", group.flow), ("afterwards", group.afterwards))
        )
        variables = self._variables(group.variables)
        with located(node.at(("load",))):
            default = Load() if group.phase == "main" else Load(iterations=1)
            load = lower_load(group.load or default, self._names)
        feeds = [
            {"action": {"kind": "feed", "feeder": _data_name(source, index)}}
            for index, source in enumerate(scenario.data)
            if source.advance == "iteration"
        ]
        teardown = "teardown" if group.after_stop else "teardown_unless_stopped"
        after = list(group.after) or [one.name for one in earlier if scenario.serial and one.phase == group.phase][-1:]
        lowered: Lowered = {
            "name": group.name,
            "tags": {**given, **scenario.tags, **group.tags},
            "phase": teardown if group.phase == "teardown" else group.phase,
            "after": after,
            "start_delay_ms": load.delay_ms,
            "arrivals": {key: value for key, value in load.arrivals.items() if value is not None},
            "end": load.end,
            "on_error": group.on_error.replace("-", "_"),
            # Gatling injects users: each executes the flow once.
            "new_user_each_iteration": group.new_user or isinstance(group.load, GatlingLoad),
            "clear_cookies_each_iteration": group.clear_cookies,
            "clear_cache_each_iteration": group.clear_cache,
            "close_connections_each_iteration": group.new_connections,
            "variables": variables,
            "before": before,
            "flow": [*feeds, *flow],
            "afterwards": afterwards,
        }
        if node.mark.line is not None:
            lowered["source"] = {"file": node.mark.file, "line": node.mark.line}
        return lowered, load

    def _variables(self, given: Mapping[str, str | None]) -> list[Lowered]:
        found: list[Lowered] = []
        for name, text in given.items():
            with self._problems.caught(), located(self._root.at(("variables", name))):
                found.append({"name": name, "value": self._names.template(template(text or ""))})
        return found

    def _raise_any(self) -> None:
        """Raise all mistakes. A parameter without a value is one, in however many steps it is used."""
        try:
            self._problems.raise_any()
        except PlanError as first:
            missing: set[str] = set()
            others = []
            for one in (first, *first.others):
                named = _NO_VALUE.search(str(one))
                if named is None or named[0] not in missing:
                    others.append(one)
                missing |= {named[0]} if named is not None else set()
            first.others = tuple(others[1:])
            raise

    def _raise_unset(self, unset: tuple[UnsetVariable, ...]) -> None:
        """Raise PlanError: requests that read these variables would fail without being sent."""
        for one in unset:
            hint = f"did you mean '{one.near}'?" if one.near else "set it in variables, data, extract or a step"
            why = f"the variable '{one.name}' is set nowhere"
            self._problems.add([PlanError(one.file or self._root.mark.file, one.line, why, hint=hint)])
        self._problems.raise_any()

    def _feeder(self, source: DataSource, node: Node) -> Lowered:
        index = self._scenario.data.index(source)
        with located(node):
            columns, rows = self._rows(source)
            if not rows:
                raise ValueError(f"the data source '{_data_name(source, index)}' has no rows; give it at least one")
        ends = {"recycle": {"kind": "recycle"}, "stop-user": {"kind": "stop_user"}, "stop-test": {"kind": "stop_test"}}
        return {
            "name": _data_name(source, index),
            "columns": columns,
            "rows": rows,
            "share": {"all": "test", "group": "population"}.get(source.share, source.share),
            "order": source.order,
            "at_end": ends.get(source.at_end, {"kind": "text", "text": "<EOF>"}),
        }

    def _rows(self, source: DataSource) -> tuple[list[str], list[list[str]]]:
        if source.file is None:
            return list(source.columns), [list(row) for row in source.rows]
        name = self._names.text(template(source.file))
        try:
            text = self._read_file(name).decode(source.encoding).removeprefix("\ufeff")
        except (UnicodeDecodeError, LookupError):
            raise ValueError(f"{name} is not text in {source.encoding}; give its encoding") from None
        separator = source.separator.replace("\\t", "\t")
        try:
            rows = _table(text, separator, is_quoted=source.quoted)
            if source.blank_lines == "eof":
                rows = [row if any(row) or len(row) > 1 else ["<EOF>"] * len(source.columns or rows[0]) for row in rows]
            else:
                rows = [row for row in rows if row]
        except csv.Error as error:
            raise ValueError(f"{name} is not a table: {error}") from None
        if len(rows) > MOST_ROWS:
            raise ValueError(f"{name} has more than {MOST_ROWS} rows")
        has_header = not source.columns if source.header is None else source.header
        if not source.columns and not rows:
            raise ValueError(f"{name} is empty")
        header = rows.pop(0) if has_header and rows else []
        return [name.strip() for name in source.columns or header], rows

    def _thresholds(self, tags: Mapping[str, set[str]]) -> tuple[tuple[Threshold, bool, int], ...]:
        found = []
        for metric, rules in self._scenario.thresholds.items():
            for rule in rules:
                with self._problems.caught(), located(self._root.at(("thresholds", metric))):
                    delay_ms = round(self._names.number(duration(rule.delay_abort_eval)) / 1000)
                    threshold = read_threshold(metric, rule.threshold)
                    check_known_tags(threshold, tags)
                    found.append((threshold, rule.abort_on_fail, delay_ms))
        self._raise_any()
        return tuple(found)


def _table(text: str, separator: str, *, is_quoted: bool) -> list[list[str]]:
    if not is_quoted:
        lines = io.StringIO(text, newline=None).read().removesuffix("\n").split("\n")
        return [line.split(separator) if line else [] for line in lines] if text else []
    return list(csv.reader(io.StringIO(text), delimiter=separator))


def _data_name(source: DataSource, index: int) -> str:
    return source.name or source.file or f"data-{index + 1}"


def _longest_ms(loads: list[tuple[Group, LoweredLoad]], *, serial: bool) -> int | None:
    lengths = [
        None if load.longest_ms is None else load.longest_ms + load.delay_ms
        for group, load in loads
        if group.phase == "main"
    ]
    known = [length for length in lengths if length is not None]
    if len(known) < len(lengths):
        return None
    return sum(known) if serial else max(known, default=0)


def _has_end(arrivals: Lowered) -> bool:
    return arrivals["model"] != "users" or not (arrivals["duration_ms"] is None and arrivals.get("iterations") is None)


def _most_users(arrivals: Lowered) -> int:
    if arrivals["model"] == "users":
        return max([int(arrivals["initial"]), *(int(stage["users"]) for stage in arrivals["stages"])])
    if arrivals["model"] == "shared_iterations":
        return int(arrivals["users"])
    return int(arrivals["users_most"] or arrivals["users_at_start"])
