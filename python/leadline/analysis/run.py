"""Analyses a whole run from its manifest and journal entries, including a killed run, whose journal ends early.

Reads the entries once, in order, and keeps only the current trial and the results of the previous ones.

These keys of the manifest (`run.json`) are used. All are optional, so a journal without a manifest still gives
figures: `run_id`, `name`, `started_at`, `plan` (`targets` and `limits.stability.spread`), `plan_text`, `command`,
`version`, `cases` (`id`, `parameters`, `tests` with `name` and `kind`), `asked` (metrics in addition to those of each
kind: percentiles) and `hosts`. A `run-begin` record fills gaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from pydantic import ValidationError

from leadline.analysis import baseline_ratios, cross_checks, findings, ladder, scaling, sizing
from leadline.analysis.answers import answers_of
from leadline.analysis.baselines import natural
from leadline.analysis.environment import Environment
from leadline.analysis.frequent_events import FREQUENT_TYPES, MALFORMED, AgentLives, FrequentEvents
from leadline.analysis.host_clocks import bound_ns_of
from leadline.analysis.link_changes import LinkChange
from leadline.analysis.metrics import Histograms
from leadline.analysis.model import (
    Ceiling,
    ClientBringUp,
    JournalDamage,
    RunAnalysis,
    Summary,
    TestResult,
    TrialResult,
)
from leadline.analysis.precision import confidence_over_repeats, precision_goal
from leadline.analysis.repeats import summarise
from leadline.analysis.searches import TrialSearches
from leadline.analysis.targets import judge_summaries, parse_targets
from leadline.analysis.test_data import ClockCheck, LostHost, TestData
from leadline.analysis.test_spec import HostSpecs, TestSpec
from leadline.analysis.trial_tests import AnalysedTests, Begin, Pending, analyse_at_once
from leadline.dataset import HostClocks, JournalReader, reads_strictly
from leadline.errors import PlanError
from leadline.plan.field_types import validate_input
from leadline.plan.limits import Limits
from leadline.plan.targets import Target, named_metrics

Record = Mapping[str, Any]

_CUT_OFF = "the run was interrupted here"


def analyse(manifest: Record, entries: Iterable[Record], begin: Begin = analyse_at_once) -> RunAnalysis:
    """Analyse a run: everything that tables and reports show. Pure: the same input gives the same findings.

    Entries without required fields are counted, and reported together with the lines that a `JournalReader` could not
    read. `begin` analyses the tests of each trial, at once or while the reading goes on.
    """
    return _read(manifest, entries, begin).findings()


def result_with_histograms(manifest: Record, entries: Iterable[Record]) -> tuple[TestResult, Histograms | None]:
    """The first test of the first trial, and its histograms, which repeats merge; None for a search, whose last load
    need not be at the rate found."""
    reading = _read(manifest, entries, analyse_at_once)
    result = reading.findings().trials[0].tests[0]
    return result, reading.histograms.get((result.case, result.repeat, result.test))


def _read(manifest: Record, entries: Iterable[Record], begin: Begin) -> _Reading:
    reading = _Reading(manifest, begin)
    reader = entries if isinstance(entries, JournalReader) else None
    noted = 0
    for entry in entries:
        if reader is not None and reader.damaged > noted:
            noted = reader.damaged
            reading.note_damage(reader)
        reading.take(entry)
    if reader is not None:
        reading.note_damage(reader)
    reading.end_trial({})
    reading.end_stretch()
    return reading


@dataclass(slots=True)
class _Trial:
    """The current trial."""

    trial: str
    case: str
    repeat: int
    parameters: dict[str, Any]
    sut: str = ""
    sut_version: str | None = None
    sut_title: str | None = None
    bring_up: ClientBringUp | None = None
    sut_processes: tuple[str, ...] = ()
    tiers: tuple[dict[str, Any], ...] = ()
    cpu_attribution: str | None = None
    ceiling: Ceiling | None = None
    on_given_hosts: bool = False
    bring_up_seen: bool = False
    cpu_quotas: dict[str, dict[str, float]] = field(default_factory=dict)
    given_gateways: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unreadable_lines: int = 0
    link_changes: list[LinkChange] = field(default_factory=list)
    tests: dict[str, TestData] = field(default_factory=dict)
    lost_hosts: dict[str, LostHost] = field(default_factory=dict)
    """The client hosts that the trial went on without."""
    clock_checks: dict[str, dict[str, list[ClockCheck]]] = field(default_factory=dict)
    """By the label of the test and the host."""
    loads: dict[str, str] = field(default_factory=dict)
    """The label of the search that a load belongs to."""
    searches: dict[str, Record] = field(default_factory=dict)
    """The records of searches that ended, by label."""

    def note_hosts(self, record: Record) -> None:
        """What its hosts are, and which of them it goes on without."""
        if record["record"] == "host-lost":
            self.lost_hosts[str(record["host"])] = LostHost(int(record["at_ns"]), str(record.get("reason")))
            return
        self.on_given_hosts = not record.get("brought_up")
        self.given_gateways = {str(name): tuple(ends) for name, ends in (record.get("gateways") or {}).items()}


class _Reading:
    """Processes the entries one by one, and collects results trial by trial."""

    def __init__(self, manifest: Record, begin: Begin) -> None:
        self._manifest = dict(manifest)
        self._begin = begin
        self._cases = {case["id"]: case for case in manifest.get("cases") or () if "id" in case}
        self._clocks = HostClocks()
        self._facts: dict[str, dict[str, Any]] = {}
        self._environment = Environment()
        self._trial: _Trial | None = None
        # Trials that ended, still without their tests, and those tests.
        self._ended: list[tuple[TrialResult, Pending, TrialSearches]] = []
        self._rest: Pending | None = None
        self._trials: list[TrialResult] = []
        # The trials of rounds that were added while it ran.
        self._added: list[str] = []
        self._frequent = FrequentEvents()
        self._lives = AgentLives()
        self._status = "killed"
        self._periods_ms: dict[str, int] = {}
        self._taken = 0
        self._damage = JournalDamage()
        self._histograms: dict[tuple[str, int, str], Histograms] = {}
        self._cross_checks: list[cross_checks.ToolRepeat] = []
        self._strict = reads_strictly()

    @property
    def histograms(self) -> Mapping[tuple[str, int, str], Histograms]:
        """The histograms of each test that has ended, by case, repeat and test."""
        return self._histograms

    def note_damage(self, reader: JournalReader) -> None:
        """Take the counts of a reader so far; new damage belongs to the current trial."""
        garbled, torn = reader.damaged, reader.torn
        if self._trial is not None:
            self._trial.unreadable_lines += garbled - self._damage.garbled
        self._damage = replace(self._damage, garbled=garbled, torn=torn)

    def take(self, entry: Record) -> None:
        self._taken += 1
        try:
            self._take(entry)
        except MALFORMED:
            # A line of another version, or a garbled one that is still JSON.
            if self._strict:
                raise
            self._count_malformed()

    def _count_malformed(self) -> None:
        self._damage = replace(self._damage, malformed=self._damage.malformed + 1)
        if self._trial is not None:
            self._trial.unreadable_lines += 1

    def _take(self, entry: Record) -> None:
        event = entry.get("event")
        if isinstance(event, Mapping):
            self._event(entry, event)
            return
        if "record" not in entry:
            raise KeyError("record")
        match entry.get("record"):
            case "run-begin":
                self._manifest = {**{key: value for key, value in entry.items() if key != "record"}, **self._manifest}
            case "clock" | "clock-check":
                self._note_clock(entry)
            case "observe":
                self._periods_ms[str(entry.get("host"))] = int(entry.get("period_ms") or 0)
            case "trial-begin":
                self.end_trial({})
                self._begin_trial(entry)
            case "bring-up":
                self._bring_up(entry)
            case "test-begin":
                self._begin_test(entry)
            case "test-end":
                self._end_test(entry)
            case "trial-end":
                self.end_trial(entry)
            case "run-end":
                self._status = str(entry.get("status") or "done")
            case _:
                self._note(entry)

    def end_trial(self, record: Record) -> None:
        """Convert the current trial to its result; without a `trial-end` it was interrupted."""
        trial, self._trial = self._trial, None
        if trial is None:
            return
        for label, data in trial.tests.items():
            data.clock_checks, data.lost_hosts = trial.clock_checks.get(label, {}), trial.lost_hosts
            data.bring_up, data.sut_processes = trial.bring_up, trial.sut_processes
            data.cpu_attribution, data.cpu_quotas = trial.cpu_attribution, trial.cpu_quotas
            data.tiers = trial.tiers
            known = {host: bound_ns_of(checks) for host, checks in data.clock_checks.items()}
            data.clock_bounds_ns = self._clocks.bounds_ns | known
            data.unreadable_lines = trial.unreadable_lines
            data.link_changes = trial.link_changes
        ended = TrialResult(
            trial=trial.trial,
            case=trial.case,
            repeat=trial.repeat,
            status=str(record.get("status") or "interrupted"),
            error=_message(record.get("error")) if record else _CUT_OFF,
            sut=trial.sut,
            sut_version=trial.sut_version,
            sut_title=trial.sut_title,
            bring_up=trial.bring_up,
            tests=(),
            parameters=trial.parameters,
            on_given_hosts=trial.on_given_hosts,
        )
        self._ended.append((ended, self._begin_tests(trial.tests), self._searches(trial)))

    def end_stretch(self) -> None:
        """Begin to read what follows the last trial."""
        self._rest = self._begin_tests({})

    def _begin_tests(self, tests: Mapping[str, TestData]) -> Pending:
        frequent, self._frequent = self._frequent, FrequentEvents()
        return self._begin(tests, frequent)

    def _await_tests(self) -> None:
        for trial, pending, searches in self._ended:
            analysed = self._await(pending)
            self._trials.append(replace(trial, tests=tuple(searches.folded(analysed.results))))
            # Those of a search are of its last load, which need not be at the rate found.
            own = {key: one for key, one in analysed.histograms.items() if key[2] not in searches.names}
            self._histograms |= own
        self._ended = []
        if self._rest is not None:
            self._await(self._rest)

    def _await(self, pending: Pending) -> AnalysedTests:
        analysed = pending()
        found, known = analysed.frequent, self._damage
        self._damage = replace(
            known,
            malformed=known.malformed + analysed.malformed + found.malformed,
            garbled=known.garbled + found.garbled,
            torn=known.torn or found.is_torn,
        )
        self._taken += found.entries
        self._lives.extend(found.lives)
        return analysed

    def _searches(self, trial: _Trial) -> TrialSearches:
        """Which of a trial's tests are loads of searches."""
        of_case = self._cases.get(trial.case, {}).get("tests") or ()
        return TrialSearches(
            tuple(trial.loads.get(label) for label in trial.tests),
            trial.searches,
            {str(test.get("name")): test for test in of_case},
        )

    def findings(self) -> RunAnalysis:
        self._await_tests()
        plan = self._manifest.get("plan") or {}
        damage = replace(self._damage, lines=self._taken + self._damage.garbled + self._damage.torn)
        limit = _stability_spread(plan)
        if (goal := precision_goal(self._manifest)) is not None:
            limit = max(limit, goal.width)  # A figure that is known as well as the user wants is not unstable.
        try:
            kinds = {test: kind for _, test, kind in self._tests()}
            asked = parse_targets(plan.get("targets") or (), kinds)
        except PlanError:
            # The plan was checked before the run. Its tests may all be missing here because none began.
            asked = None
        missing = self._missing_trials()
        summaries = tuple(self._summary(case, test, kind, limit, asked or ()) for case, test, kind in self._tests())
        targets = findings.undecided(plan.get("targets") or ()) if asked is None else judge_summaries(asked, summaries)
        given = self._manifest.get("hosts")
        hosts = {**(given if isinstance(given, Mapping) else {}), **self._facts}
        observer = self._lives.observer_shares()
        found = RunAnalysis(
            run_id=str(self._manifest.get("run_id") or ""),
            name=str(self._manifest.get("name") or plan.get("name") or ""),
            status=self._status,
            started_at=str(self._manifest.get("started_at") or ""),
            plan_text=str(self._manifest.get("plan_text") or ""),
            command=str(self._manifest.get("command") or ""),
            version=str(self._manifest.get("version") or ""),
            hosts=hosts,
            trials=tuple(self._trials),
            summaries=summaries,
            targets=targets,
            validity=findings.run_validity(self._status, self._trials, missing, summaries, damage),
            notes=(
                *findings.run_notes(hosts, observer),
                *findings.sampling_note(self._periods_ms),
                *findings.torn_note(damage),
                *findings.user_space_notes(self._trials),
            ),
            observer_cpu_share=observer,
            journal=damage,
            differences=self._environment.differences(self._trials),
            description=str(plan.get("description") or ""),
            missing_trials=missing,
        )
        baselines = {case["id"]: case["baseline"] for case in self._cases.values() if case.get("baseline")}
        named = named_metrics(plan.get("targets") or ())
        found = baseline_ratios.with_ratios(found, baselines, _limits(plan).margin, named)
        checks = cross_checks.of_run(self._trials, summaries, self._cross_checks, _limits(plan).margin)
        found = replace(found, cross_checks=tuple(checks))
        found = replace(found, scaling=scaling.of_run(found), sizing=sizing.of_run(found))
        return replace(
            found, answers=answers_of(found, _limits(plan).margin), ladders=ladder.of_run(found, self._cases)
        )

    def _missing_trials(self) -> tuple[str, ...]:
        """The planned trials that did not begin; of a journal without a manifest, those that its first record names."""
        planned = self._manifest.get("order") or self._manifest.get("trials")
        begun = {trial.trial for trial in self._trials}
        names = (*(planned if isinstance(planned, list) else ()), *self._added)
        return tuple(name for name in dict.fromkeys(map(str, names)) if name not in begun)

    def _event(self, entry: Record, event: Record) -> None:
        host = entry["host"]
        if event.get("type") == "hello":
            about = {name: event.get(name) for name in ("agent_version", "build_profile")}
            about["capabilities"] = event.get("capabilities") or []
            self._facts[host] = {**event["host"], **about}
            self._environment.note(self._trial.trial if self._trial is not None else "", host, self._facts[host])
            self._frequent.lives.begin(host)
            return
        offset_ns = self._clocks.offset_ns(entry)
        if event.get("type") == "link":
            if self._trial is not None:
                self._trial.link_changes.append(LinkChange.read(host, event, offset_ns))
        elif event.get("type") in FREQUENT_TYPES:
            self._frequent.take(host, event, offset_ns)
        elif self._trial is not None and event.get("trial") in self._trial.tests:
            self._trial.tests[event["trial"]].add(host, event, offset_ns)

    def _begin_trial(self, record: Record) -> None:
        case = str(record.get("case") or str(record.get("trial")).partition("/")[0])
        known = self._cases.get(case, {})
        sut = known.get("sut") or {}
        self._trial = _Trial(
            trial=str(record.get("trial")),
            case=case,
            repeat=int(record.get("repeat") or 1),
            parameters=dict(record.get("parameters") or known.get("parameters") or {}),
            sut=str(sut.get("kind") or "") if isinstance(sut, Mapping) else str(sut),
            sut_title=record.get("sut_title"),
        )
        self._frequent.begin_trial(self._trial.tests)

    def _note(self, entry: Record) -> None:
        """Facts from the journal that are not a test's own events."""
        match entry["record"]:
            case "wake-up":
                for host in entry["hosts"]:
                    self._facts[host] = {**self._facts.get(host, {}), "wake_up": entry.get("found")}
            case "lab-cpus":
                for host in entry["hosts"]:
                    used = {"own_cpus": (entry.get("cpus") or {}).get(host), "idle_poll": entry.get("idle_poll")}
                    self._facts[host] = {**self._facts.get(host, {}), **used}
            case "round":
                self._added += map(str, entry["trials"])
            case "cross-check":
                self._cross_checks.append(cross_checks.ToolRepeat.read(entry))
            case "ceiling":
                self._note_ceiling(entry)
            case "server-process":
                self._note_server(entry)
            case "system-counters" if self._trial is not None:
                if (data := self._trial.tests.get(str(entry["label"]))) is not None:
                    data.system_counters = (entry.get("before") or {}, entry.get("after") or {})
            case "search-end" if self._trial is not None:
                self._trial.searches[str(entry["label"])] = entry
            case "host-lost" | "given-hosts" if self._trial is not None:
                self._trial.note_hosts(entry)

    def _note_ceiling(self, record: Record) -> None:
        per_s = record.get("per_s")
        if self._trial is not None and isinstance(per_s, int | float) and per_s > 0:
            self._trial.ceiling = Ceiling(float(per_s), bool(record.get("extrapolated")))
            # It may have been measured after the load: a load whose threads had time to spare needs none.
            for data in self._trial.tests.values():
                data.ceiling = self._trial.ceiling

    def _bring_up(self, record: Record) -> None:
        if self._trial is None:
            return
        sut = record.get("sut")
        kind = sut.get("kind") if isinstance(sut, Mapping) else sut
        self._trial.sut = str(record.get("name") or kind or self._trial.sut)
        if record.get("name"):
            # The plan's word would say less than what was measured.
            planned = str(self._trial.parameters.get("sut") or kind)
            self._trial.parameters["sut"] = planned.replace(str(kind), self._trial.sut, 1)
        self._trial.sut_title = record.get("title") or self._trial.sut_title
        self._trial.bring_up_seen = True
        self._trial.sut_version = record.get("version")
        self._trial.bring_up = _client_bring_up(record.get("clients") or ())
        attribution = record.get("cpu_attribution")
        self._trial.cpu_attribution = str(attribution) if attribution is not None else None
        self._trial.cpu_quotas = dict(record.get("cpu_quotas") or {})
        self._trial.tiers = tuple(record.get("tiers") or ())
        processes = record.get("processes") or ()
        names = (process.get("name") if isinstance(process, Mapping) else process for process in processes)
        self._trial.sut_processes = tuple(str(name) for name in names if name)

    def _note_controller(self, record: Record) -> None:
        """What the controller had cost when a test began or ended."""
        data = self._trial.tests.get(str(record.get("label"))) if self._trial is not None else None
        cpu_s, at_ns = record.get("controller_cpu_s"), record.get("at_ns")
        if data is not None and isinstance(cpu_s, int | float) and isinstance(at_ns, int):
            data.controller_cpu.append((at_ns, float(cpu_s)))
            data.controller_boot_id = record.get("controller_boot_id") or data.controller_boot_id

    def _begin_test(self, record: Record) -> None:
        trial, label = self._trial, str(record.get("label"))
        if trial is None:
            return
        link = self._cases.get(trial.case, {}).get("link") or {}
        test = {"name": label.rpartition("/")[2], **(record.get("test") or {})}
        specs = HostSpecs.read(test, record.get("shares") or {})
        trial.tests[label] = TestData(
            spec=specs.largest or TestSpec.read(test),
            hosts=tuple(record.get("hosts") or ()),
            host_specs=specs,
            left_out=tuple(record.get("left_out") or ()),
            receivers=_tasks_of(record, "receivers"),
            reflectors=_tasks_of(record, "reflectors"),
            clients_wanted=(record.get("test") or {}).get("clients"),
            case=trial.case,
            repeat=trial.repeat,
            parameters=trial.parameters,
            status="interrupted",
            error=_CUT_OFF,
            start_at_ns=record.get("start_at_ns"),
            start_wall_ns=wall_ns if isinstance(wall_ns := record.get("start_wall_ns"), int) else None,
            facts=self._facts,
            stability_spread=_stability_spread(self._manifest.get("plan") or {}),
            asked=self._asked(),
            ceiling=trial.ceiling,
            given_gateways=trial.given_gateways,
            in_lab=trial.bring_up_seen and not trial.given_gateways,
            link_bps=link.get("rate_bps"),
            link_mtu_bytes=link.get("mtu_bytes") or 1500,
        )
        self._note_controller(record)
        if record.get("search") is not None:
            trial.loads[label] = str(record["search"])

    def _note_clock(self, record: Record) -> None:
        """A comparison of clocks: one that instants are mapped by, or one of a test, whose first ones come before its
        beginning."""
        if record.get("record") == "clock":
            self._clocks.note(record)
        elif self._trial is not None:
            checks = self._trial.clock_checks.setdefault(str(record.get("label")), {})
            check = ClockCheck(int(record["at_ns"]), int(record["offset_ns"]), int(record["bound_ns"]))
            checks.setdefault(str(record.get("host")), []).append(check)

    def _asked(self) -> tuple[str, ...]:
        """Percentiles in the targets."""
        targets = (self._manifest.get("plan") or {}).get("targets") or ()
        return (*named_metrics(targets), *map(str, self._manifest.get("asked") or ()))

    def _note_server(self, record: Record) -> None:
        data = self._trial.tests.get(str(record.get("label"))) if self._trial is not None else None
        pid = record.get("pid")
        if data is not None and isinstance(pid, int):
            data.server_pid = pid

    def _end_test(self, record: Record) -> None:
        data = self._trial.tests.get(str(record.get("label"))) if self._trial is not None else None
        if data is not None:
            data.status = str(record.get("status") or "done")
            data.error = _message(record.get("error"))
            self._note_controller(record)

    def _tests(self) -> list[tuple[str, str, str]]:
        """Case, name and kind of each test of the run, in the order of the plan, without skipped cases."""
        found: dict[tuple[str, str], str] = {}
        begun = {trial.case for trial in self._trials if trial.status != "skipped"}
        for case in self._cases.values():
            if case["id"] in begun:
                found |= {(case["id"], test["name"]): test["kind"] for test in case.get("tests") or ()}
        for trial in self._trials:
            for test in trial.tests:
                found.setdefault((test.case, test.test), test.kind)
        return [
            (case, test, kind) for (case, test), kind in sorted(found.items(), key=lambda item: natural(item[0][0]))
        ]

    def _summary(self, case: str, test: str, kind: str, limit: float, targets: Sequence[Target]) -> Summary:
        trials = [trial for trial in self._trials if trial.case == case and trial.status != "skipped"]
        results = [result for trial in trials for result in trial.tests if result.test == test]
        parameters = results[0].parameters if results else self._cases.get(case, {}).get("parameters") or {}
        return summarise(
            results,
            planned=len(trials),
            limit=limit,
            case=case,
            test=test,
            kind=kind,
            parameters=parameters,
            named=[target.metric for target in targets if target.test in (None, test)],
            targets=targets,
            confidence=confidence_over_repeats(self._manifest),
            histograms=self._histograms,
        )


def _client_bring_up(clients: Sequence[Record]) -> ClientBringUp | None:
    """Counts and times of the clients' bring-up; None if the system has no clients of its own (a route)."""
    if not clients:
        return None
    states = Counter(str(client.get("state")) for client in clients)
    times = sorted(client["time_s"] for client in clients if client.get("time_s") is not None)
    causes: Counter[str] = Counter()
    for client in clients:
        if client.get("state") != "connected":
            missing = ", ".join(client.get("missing") or ())
            causes[client.get("cause") or (f"missing: {missing}" if missing else "unknown")] += 1
    return ClientBringUp(
        connected=states["connected"],
        partial=states["partial"],
        failed=states["failed"],
        time_p50_s=median(times) if times else None,
        time_max_s=times[-1] if times else None,
        causes=dict(causes),
    )


def _tasks_of(record: Record, role: str) -> frozenset[tuple[str, str]]:
    """The hosts and tasks of a role in a load."""
    return frozenset((str(one["host"]), str(one["task"])) for one in record.get(role) or ())


def _stability_spread(plan: Record) -> float:
    """The plan's limit of the spread."""
    return _limits(plan).stability.spread


def _limits(plan: Record) -> Limits:
    """The plan's limits as written (`15%` or 0.15); the defaults if they are missing or unreadable."""
    try:
        return validate_input(Limits, plan.get("limits") or {})
    except ValidationError:
        return Limits()


def _message(error: Any) -> str | None:
    if isinstance(error, Mapping):
        return str(error.get("message") or error.get("code") or "")
    return str(error) if error else None
