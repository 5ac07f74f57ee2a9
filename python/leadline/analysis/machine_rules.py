"""The rules whose verdict depends on the machine: on what else it does, how fast it is, and how even that is.

Tests of real loads switch them off (`LEADLINE_MACHINE_RULES=off`), so that other work on their machine cannot fail
them. Every test, run and search that was judged without them says so in its notes, and a run in its reasons too.
Everything else is judged as always: what ended early, what did not begin, what the journal lacks.
"""

from __future__ import annotations

from collections.abc import Iterable

from leadline.analysis.model import Reason, RunAnalysis, Verdict
from leadline.dataset import are_machine_rules_off

MACHINE_REASONS = frozenset(
    {
        # Other work, a hypervisor, heat, quotas.
        *("other-work", "cpu-stolen", "heat-throttled", "quota-held-back", "machine-saturated", "cpu-shared"),
        # A sender or a receiver that had no CPU when it needed one.
        *("thread-saturated", "thread-starved", "thread-waited", "quota-used-up", "near-ceiling", "users-wait"),
        "ends-cpus-full",
        *("sends-late", "read-late", "source-read-late", "unsent", "ran-over", "pushback"),
        *("receiver-socket-drops", "receiver-backlog-drops", "sender-interface-drops"),
        # Figures that differ from one moment, or from one repeat, to the next.
        *("intervals-disagree", "change-point", "precision-unknown", "percentile-uncertain"),
        *("repeats-disagree", "repeats-too-few", "periodic-stalls", "roughly-known"),
        # Flows that began late.
        "window-too-short",
    }
)
"""The codes of their reasons."""
RULES_OFF = "machine-rules-off"
_TEXT = (
    "LEADLINE_MACHINE_RULES=off switches the rules about the machine off: whether other work disturbed this, the "
    "generator was at its limit, or figures are too uneven was not judged"
)


def without_machine(findings: Iterable[tuple[Verdict, Reason]]) -> list[tuple[Verdict, Reason]]:
    """The findings that count: without those about the machine where their rules are off."""
    if not are_machine_rules_off():
        return list(findings)
    return [(verdict, reason) for verdict, reason in findings if reason.code not in MACHINE_REASONS]


def notes_without_machine(notes: Iterable[Reason]) -> tuple[Reason, ...]:
    """The notes that count, as `without_machine`."""
    return tuple(note for _, note in without_machine((Verdict.VALID, note) for note in notes))


def notes() -> tuple[Reason, ...]:
    """States that the rules are off; empty where they are on."""
    return (Reason(RULES_OFF, _TEXT),) if are_machine_rules_off() else ()


def is_judged_alike(run: RunAnalysis) -> bool:
    """Whether a run was judged with the rules that hold now."""
    return is_judged_without(run) == are_machine_rules_off()


def is_judged_without(run: RunAnalysis) -> bool:
    """Whether a run was judged without the rules about the machine."""
    return any(reason.code == RULES_OFF for reason in run.validity.reasons)
