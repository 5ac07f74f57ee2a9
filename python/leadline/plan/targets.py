"""Targets of a plan: `TEST.METRIC < VALUE`, and the names of the figures that each kind of test gives.

A value may carry a unit where the metric's name ends in one. Judging is `analysis`' work. Pure.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from leadline.errors import PlanError
from leadline.plan import units
from leadline.plan.percentiles import histogram_of
from leadline.plan.source import Node, did_you_mean
from leadline.plan.target_words import read_value, suggestion

_LATENCIES = tuple(f"latency_{name}_us" for name in ("min", "mean", "p50", "p90", "p99", "p999", "max"))
_SPREAD = ("min", "mean", "stdev", "p50", "p75", "p90", "p95", "p99", "p999", "p9999", "p99999", "max")
_PHASES = ("dns", "connect", "tls_full", "tls_resumed", "first_byte", "transfer")
_STEPS = ("connect", "answer", "tls", "keys", "push", "first_data", "reconnect", "recovered", "renegotiate")
_DATAGRAMS = ("throughput_bps", "packets_per_s", "sent", "received", "lost", "lost_ratio")
_PINGS = ("ping_before", "ping_during", "ping_after")
_TIMES = ("min", "mean", "p50", "p90", "p99", "max")
METRICS: Mapping[str, tuple[str, ...]] = {
    "tcp": ("throughput_bps", "retransmits", "rtt_mean_us"),
    "udp": (*_DATAGRAMS, "duplicates", "reordered", "jitter_us"),
    "rr": ("transactions", "transactions_per_s", *_LATENCIES),
    "http": (
        "requests",
        "requests_per_s",
        "requests_due",
        "requests_sent",
        "unanswered",
        "unsent",
        "error_ratio",
        *(f"status_{digit}xx" for digit in range(1, 6)),
        "redirects",
        "bytes_sent",
        "bytes_received",
        "body_bytes",
        "transfer_bps",
        "connections_opened",
        "handshakes_full",
        "handshakes_resumed",
        *(f"latency_{name}_us" for name in _SPREAD),
        "latency_samples",
        "latency_censored",
        "latency_within_stdev_ratio",
        *(f"service_{name}_us" for name in _SPREAD),
        *(f"late_{name}_us" for name in ("p50", "p99", "max")),
        *(f"{phase}_{name}_us" for phase in _PHASES for name in ("mean", "p50", "p99", "max")),
        "kernel_wait_p99_us",
    ),
    "tunnel": (
        "clients",
        "configured",
        "partial",
        "failed",
        "failed_ratio",
        "unconfigured_ratio",
        "handshakes_per_s",
        *(f"{step}_{name}_ms" for step in _STEPS for name in _TIMES),
        "attempts",
        "retransmits",
        "recovered",
        "recovered_partial",
        "reconnects_begun",
        "returned",
        "tunnels_lost",
        "renegotiations_asked",
        "renegotiated",
        "renegotiations_unfinished",
        "renegotiations_failed",
        "actions_skipped",
        *(f"late_{name}_us" for name in ("p50", "p99", "max")),
        *(f"{ping}_{name}_ms" for ping in _PINGS for name in _TIMES),
        "pings_sent",
        "pings_lost",
        "pings_unsent",
        *(f"pings_lost_{when}" for when in ("before", "during", "after")),
        "memory_bytes",
        "memory_per_client_bytes",
        "server_cpu_s",
        "server_cpu_per_client_ms",
        "server_memory_bytes",
        "server_memory_per_client_bytes",
        *_DATAGRAMS,
        *_LATENCIES,
        "sends_late_p99_us",
        "sends_late_ratio",
    ),
}
"""What can be a target, by kind of test."""

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Target:
    """One target; `value` is in the metric's own unit, `test` None stands for every test that has the metric."""

    text: str
    test: str | None
    metric: str
    op: str
    value: float

    def met_by(self, figure: float) -> bool:
        """Whether a figure, in the metric's unit, meets it."""
        return OPERATORS[self.op](figure, self.value)


def has_metric(kind: str, metric: str) -> bool:
    """Whether a kind of test has a figure of this name: one of `METRICS`, or any percentile of what it has p99 of."""
    known = METRICS.get(kind, ())
    asked = histogram_of(metric)
    return metric in known or (asked is not None and asked.sibling in known)


def named_metrics(texts: Iterable[str]) -> tuple[str, ...]:
    """The metrics that these targets name, each once; what is no target is passed over."""
    matches = (_TARGET.fullmatch(str(text).strip()) for text in texts)
    return tuple(dict.fromkeys(match[2] for match in matches if match is not None))


def read_target(node: Node, kinds: Mapping[str, str]) -> Target:
    """Parse one target of a plan whose tests have these kinds, by name.

    Raises:
        PlanError: not of the form, or a test, metric or value that there is not.
    """
    text = str(node.value)
    match = _TARGET.fullmatch(text.strip())
    if match is None:
        raise _error(node, text, "not of the form 'METRIC < VALUE'", "as in 'throughput.lost_ratio < 0.1%'")
    test, metric, op, value = match.groups()
    if test is not None and test not in kinds:
        raise _error(node, text, f"unknown test '{test}'", did_you_mean(test, kinds))
    meant = [kinds[test]] if test else list(kinds.values())
    known = [name for kind in meant for name in METRICS[kind]]
    if not any(has_metric(kind, metric) for kind in meant):
        of_test = f" of a {kinds[test]} test" if test else ""
        raise _error(node, text, f"unknown metric '{metric}'{of_test}", suggestion(metric, known))
    try:
        return Target(text, test, metric, op, read_value(value, metric, known))
    except units.UnitError as error:
        raise _error(node, text, str(error), None) from None


def _error(node: Node, text: str, words: str, hint: str | None) -> PlanError:
    """An error about one target; an option's place holds its text already."""
    is_told = node.mark.line is None and node.mark.file.endswith(repr(text))
    return node.mark.error(words if is_told else f"target {text!r}: {words}", hint=hint)


_TARGET = re.compile(r"(?:([A-Za-z0-9][\w-]*)\s*\.\s*)?([a-z][a-z0-9_]*)\s*(<=|>=|==|<|>)\s*([^\s<>=].*?)", re.ASCII)
