"""The verdict on a whole run from its results, and notes on its hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from leadline.analysis import machine_rules, validity
from leadline.analysis.model import (
    JournalDamage,
    Reason,
    Summary,
    TargetResult,
    TestResult,
    TrialResult,
    Validity,
    Verdict,
)
from leadline.analysis.test_data import TestData
from leadline.analysis.validity import JOURNAL_DAMAGED
from leadline.plan.sut import USER_SPACE
from leadline.quantities import rounded_share

# The design's limit for the cost of observing, as a share of one CPU.
OBSERVER_LIMIT = 0.01

_ENDED = {"killed": "the run was killed; its journal ends without a record", "interrupted": "the run was interrupted"}


def run_validity(
    status: str,
    trials: Sequence[TrialResult],
    missing: Sequence[str],
    summaries: Sequence[Summary],
    damage: JournalDamage,
) -> Validity:
    """The worst verdict of the results, and the reasons for which the run is incomplete. `missing` are the trials that
    did not begin."""
    planned = len(trials) + len(missing)
    findings = [(Verdict.VALID, note) for note in machine_rules.notes()]
    if damage.garbled or damage.malformed:
        findings.append((Verdict.UNDETERMINED, Reason(JOURNAL_DAMAGED, _damage_text(damage))))
    if status in _ENDED:
        findings.append((Verdict.INCOMPLETE, Reason(f"run-{status}", _ENDED[status])))
    lost = [*(trial.trial for trial in trials if trial.status not in ("done", "skipped")), *missing]
    if lost:
        text = f"{len(lost)} of {planned} trials did not complete: {_named(lost)}"
        findings.append((Verdict.INCOMPLETE, Reason("trials-failed", text)))
    skipped = [trial.trial for trial in trials if trial.status == "skipped"]
    if skipped:
        text = f"{len(skipped)} of {planned} trials were skipped as the plan allows: {_named(skipped)}"
        findings.append((Verdict.VALID, Reason("trials-skipped", text)))
    if not summaries:
        findings.append((Verdict.INCOMPLETE, Reason("no-results", "no test began")))
    verdicts = Counter(summary.validity.verdict for summary in summaries)
    for verdict in Verdict:
        if verdict is not Verdict.VALID and verdicts[verdict]:
            text = f"{verdicts[verdict]} of {len(summaries)} results are {verdict.value}"
            findings.append((verdict, Reason(f"results-{verdict.value}", text)))
    return validity.combine(findings)


def unreadable_test(data: TestData, error: Exception) -> TestResult:
    """The result of a test whose journal entries lack data for its figures."""
    text = f"its lines of the journal lack required fields ({type(error).__name__}: {error})"
    return TestResult(
        case=data.case,
        repeat=data.repeat,
        test=data.spec.name,
        kind=data.spec.kind,
        parameters=data.parameters,
        status="failed",
        error=text,
        metrics={},
        validity=Validity(Verdict.INCOMPLETE, (Reason(JOURNAL_DAMAGED, text),)),
        window=None,
        generator=None,
        errors={},
    )


def torn_note(damage: JournalDamage) -> tuple[Reason, ...]:
    """A note if the last line is torn. A kill leaves a torn line, so it changes no verdict."""
    text = "the journal's last line is torn, as after a kill or a power cut: its content is lost"
    return (Reason("journal-torn", text),) if damage.torn else ()


def _damage_text(damage: JournalDamage) -> str:
    counts = [f"{damage.garbled:,} garbled"] if damage.garbled else []
    counts += [f"{damage.malformed:,} without required fields"] if damage.malformed else []
    whole = f" of {damage.lines:,}" if damage.lines else ""
    lost = damage.garbled + damage.malformed
    return (
        f"{lost:,}{whole} lines of the journal could not be read ({', '.join(counts)}): "
        "figures that needed them are missing or too low"
    )


def run_notes(hosts: Mapping[str, Mapping[str, Any]], observer: Mapping[str, float | None]) -> tuple[Reason, ...]:
    """Notes on hosts that share a machine, clocks, counters that this kernel lacks, and the cost of observing."""
    return (*_shared(hosts), *_sleeping(hosts), *_clocks(hosts), *_missing_counters(hosts), *_observer(hosts, observer))


def sampling_note(periods_ms: Mapping[str, int]) -> tuple[Reason, ...]:
    """A note if some hosts were sampled less often than others."""
    if len(set(periods_ms.values())) < 2:
        return ()
    least = max(periods_ms.values())
    number = sum(period == least for period in periods_ms.values())
    text = f"{number} of {len(periods_ms)} hosts were sampled only every {least / 1000:g} s, to limit the cost"
    return (Reason("sampling-thinned", text),)


def user_space_notes(trials: Iterable[TrialResult]) -> Iterable[Reason]:
    """A note for each system whose packets passed through user space although its usual data plane is the kernel."""
    titles = dict.fromkeys(trial.sut_title for trial in trials if trial.sut_title is not None)
    for title in titles:
        if title.endswith(USER_SPACE):
            text = (
                f"{title} is not the same system with its packets in the kernel, and says nothing of how fast that is"
            )
            yield Reason("user-space-data-plane", text)


def undecided(targets: Iterable[str]) -> tuple[TargetResult, ...]:
    """The targets of a run without results, all undecided."""
    return tuple(TargetResult(text, "", "undecided", None, "no test has this figure") for text in targets)


def _named(trials: Sequence[str]) -> str:
    return ", ".join(trials[:5]) + (" ..." if len(trials) > 5 else "")


def _shared(hosts: Mapping[str, Mapping[str, Any]]) -> Iterable[Reason]:
    machines = Counter(facts["boot_id"] for facts in hosts.values() if facts.get("boot_id"))
    for boot_id, together in machines.items():
        if together > 1:
            cpus = _cpus_of([facts for facts in hosts.values() if facts.get("boot_id") == boot_id])
            which = "all" if together == len(hosts) else f"{together} of the"
            text = f"{which} {len(hosts)} hosts are on one machine and share its {cpus} CPUs"
            yield Reason("shared-cpus", text)


def _cpus_of(hosts: Sequence[Mapping[str, Any]]) -> object:
    """The number of CPUs of these hosts' machine that a run may use; each host may have some of them to itself."""
    own = [set(facts.get("own_cpus") or ()) for facts in hosts]
    return len(set().union(*own)) if all(own) else hosts[0].get("cpus")


def _sleeping(hosts: Mapping[str, Mapping[str, Any]]) -> Iterable[Reason]:
    """CPUs that sleep although the plan asked them not to."""
    polling = [facts.get("idle_poll") for facts in hosts.values()]
    refused = next((one.get("reason") for one in polling if one and not one.get("held")), None)
    if refused:
        yield Reason("idle-poll-refused", f"idle CPUs sleep although lab.idle is poll: {refused}")


def _clocks(hosts: Mapping[str, Mapping[str, Any]]) -> Iterable[Reason]:
    loose = sorted(name for name, facts in hosts.items() if (facts.get("clock") or {}).get("synchronised") is False)
    if loose:
        named = ", ".join(loose[:3]) + (" ..." if len(loose) > 3 else "")
        text = (
            f"the clock is not synchronised on {named}: durations and rates have an error of up to 0.01 %, the time "
            "of day by more"
        )
        yield Reason("unsynchronised-clock", text)


def _missing_counters(hosts: Mapping[str, Mapping[str, Any]]) -> Iterable[Reason]:
    """Each missing capability once, even if several hosts share the kernel."""
    missing: dict[tuple[str, str], int] = {}
    for facts in hosts.values():
        for capability in facts.get("capabilities") or ():
            if not capability.get("available", True):
                key = (str(capability.get("name")), str(capability.get("reason") or "unknown reason"))
                missing[key] = missing.get(key, 0) + 1
    for (name, reason), number in sorted(missing.items()):
        where = "" if number == len(hosts) else f" on {number} of {len(hosts)} hosts"
        yield Reason("counters-missing", f"{name} is not available{where}: {reason}")


def _observer(hosts: Mapping[str, Mapping[str, Any]], observer: Mapping[str, float | None]) -> Iterable[Reason]:
    """The cost of observing per machine: hosts that are namespaces of one machine add up."""
    paid: dict[str, list[float]] = {}
    for host, share in observer.items():
        if share is not None:
            paid.setdefault(str(hosts.get(host, {}).get("boot_id") or host), []).append(share)
    if not paid:
        return
    shares = max(paid.values(), key=sum)
    together = f" for its {len(shares)} hosts" if len(shares) > 1 else ""
    whole, each = rounded_share(sum(shares), 2), rounded_share(max(shares), 2)
    text = f"observing cost at most {whole} of one CPU on one machine{together}, {each} per host"
    yield Reason("observer-cost", text + ("; the limit is 1 % per host" if max(shares) >= OBSERVER_LIMIT else ""))
