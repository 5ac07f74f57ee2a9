"""The cost of a VPN's protocol in memory: figures per packet, the cost per byte and per packet, and the verdict.

Times are CPU time of the thread. Other work on the CPU is not included, but it does evict caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leadline.analysis import machine_rules
from leadline.analysis.model import Reason, Validity, Verdict
from leadline.analysis.validity import combine
from leadline.contract.models import CpuSample
from leadline.quantities import rounded_share

# If a thread did not run for this share of the time, other work used its CPU and its caches.
SHARED = 0.02
# Time that the hypervisor steals counts as CPU time of the thread that it interrupts.
STOLEN = 0.01
# A fit needs three sizes: a line through two points always fits.
LEAST_SIZES = 3


@dataclass(frozen=True, slots=True)
class CryptoFigure:
    """The result of one kind of operation on payloads of one size."""

    what: str
    """`seal`, `open`, `cipher`, `hmac`, `handshake`, `handshake_client` or `handshake_server`."""
    algorithm: str
    bytes: int | None
    """Size of the payload; None for a handshake."""
    operations: int
    cpu_ns: int
    wall_ns: int

    @property
    def ns_each(self) -> float | None:
        """CPU time of one operation, ns."""
        return self.cpu_ns / self.operations if self.operations and self.cpu_ns else None

    @property
    def per_s(self) -> float | None:
        """Operations per second of CPU time."""
        return self.operations / self.cpu_ns * 1e9 if self.cpu_ns else None

    @property
    def bytes_per_s(self) -> float | None:
        """Payload bytes per second of CPU time."""
        return None if self.bytes is None or self.per_s is None else self.bytes * self.per_s


@dataclass(frozen=True, slots=True)
class CryptoFit:
    """The line `ns = per packet + per byte * bytes` through all sizes."""

    what: str
    algorithm: str
    ns_per_packet: float
    ns_per_byte: float
    worst: float
    """The largest relative distance of a size's figure from the line."""


@dataclass(frozen=True, slots=True)
class CryptoResult:
    """All results of one measurement."""

    figures: tuple[CryptoFigure, ...]
    fits: tuple[CryptoFit, ...]
    validity: Validity
    build_profile: str | None = None
    """The Cargo profile that built the agent; None if it is unknown."""


def judge_crypto(
    figures: Sequence[CryptoFigure],
    *,
    whole: bool,
    waited: float | None = None,
    stolen: float | None = None,
    profiled: bool = False,
) -> CryptoResult:
    """Fit the operations that have enough sizes, and decide whether the figures are valid.

    `whole`: whether everything requested was measured. `waited` and `stolen`: shares of the time in which the thread
    was ready without a CPU, and in which the hypervisor stole busy CPU time; None if the kernel does not report it.
    `profiled`: whether its stacks were sampled, which costs CPU time.
    """
    findings = []
    if not whole:
        findings.append((Verdict.INCOMPLETE, Reason("ended-early", "it ended before everything was measured")))
    wall_ns = sum(figure.wall_ns for figure in figures)
    idle = 1 - sum(figure.cpu_ns for figure in figures) / wall_ns if wall_ns else 0.0
    shared = max(idle, waited or 0.0)
    if shared > SHARED:
        waiting = rounded_share(shared)
        text = f"the measuring thread waited for a CPU {waiting} of the time: other work used the CPU and its caches"
        findings.append((Verdict.UNDETERMINED, Reason("cpu-shared", text)))
    if stolen is not None and stolen > STOLEN:
        text = f"the hypervisor stole {rounded_share(stolen)} of the CPUs' busy time, which the figures include"
        findings.append((Verdict.UNDETERMINED, Reason("cpu-stolen", text)))
    notes = list(machine_rules.notes())
    notes += [Reason("profiled", "these figures include the profiler's own cost")] if profiled else []
    judged = combine(machine_rules.without_machine(findings), notes)
    return CryptoResult(tuple(figures), tuple(_fits(figures)), judged)


def stolen_share(first: Sequence[CpuSample], last: Sequence[CpuSample]) -> float | None:
    """The share of the CPUs' busy time that the hypervisor stole between two samples; None if no CPU was busy.

    Idle time is not included: time is stolen only from busy CPUs, and a measurement keeps only one of them busy.
    """

    def busy(samples: Sequence[CpuSample]) -> float:
        return sum(one.user_s + one.system_s + one.irq_s + one.softirq_s + one.steal_s for one in samples)

    taken = sum(one.steal_s for one in last) - sum(one.steal_s for one in first)
    between = busy(last) - busy(first)
    return taken / between if between > 0 else None


def _fits(figures: Sequence[CryptoFigure]) -> list[CryptoFit]:
    groups: dict[tuple[str, str], list[CryptoFigure]] = {}
    for figure in figures:
        if figure.bytes is not None and figure.ns_each is not None:
            groups.setdefault((figure.what, figure.algorithm), []).append(figure)
    return [
        fit(what, algorithm, [(figure.bytes or 0, figure.ns_each or 0.0) for figure in group])
        for (what, algorithm), group in groups.items()
        if len({figure.bytes for figure in group}) >= LEAST_SIZES
    ]


def fit(what: str, algorithm: str, points: Sequence[tuple[int, float]]) -> CryptoFit:
    """The line through points of bytes and ns with the least squares of the relative errors. Relative, because
    disturbances change large and small figures by the same share.

    Costs are at least 0. If the best line has a negative cost, the best line without that cost is used.
    """
    sizes, ns = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    lines = np.column_stack([1 / ns, sizes / ns])
    costs, *_ = np.linalg.lstsq(lines, np.ones_like(ns), rcond=None)
    if costs.min() < 0:
        kept = int(costs.argmax())
        column = lines[:, kept]
        costs = np.zeros(2)
        costs[kept] = column.sum() / (column @ column)
    per_packet, per_byte = costs
    off = np.abs((per_packet + per_byte * sizes) / ns - 1)
    return CryptoFit(what, algorithm, float(per_packet), float(per_byte), float(off.max()))
