"""Builds events, tests and whole journals with figures that are known beforehand: no run, no randomness, no clock.

Instants are ns of a controller clock that reads `EPOCH_NS` when a test begins; each host's own clock is ahead of it by
the offset that the journal's `clock` records tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from leadline.analysis import TestData, TestSpec

EPOCH_NS = 5_000_000_000_000_000
MS = 1_000_000
S = 1_000_000_000
HIGHEST_NS = 3_600_000_000_000
BOOT = "1f0c0c5e"


def histogram(metric: str, values_ns: Iterable[int]) -> dict[str, Any]:
    """A `HistogramReport` as an agent writes it."""
    made = HdrHistogram(1, HIGHEST_NS, 3)
    lows_ns, counts = np.unique(bucket_lows(np.fromiter(values_ns, np.int64)), return_counts=True)
    # Once for each bucket: recording a million single values takes a minute.
    for low_ns, count in zip(lows_ns.tolist(), counts.tolist(), strict=True):
        made.record_value(low_ns, count)
    return {"metric": metric, "count": int(counts.sum()), "hdr_v2": made.encode().decode("ascii")}


def bucket_lows(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lowest value of each value's bucket in a histogram of three significant digits from 1 on."""
    sizes = bucket_sizes(values)
    return values // sizes * sizes


def bucket_sizes(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of different values in each value's bucket: buckets are single values up to 2,048."""
    bits = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    return np.asarray(2 ** np.maximum(0, bits - 11))


def thread(busy: float = 0.5, waiting: float | None = 0.0, wall_s: float = 10.0) -> dict[str, Any]:
    return {
        "name": "load",
        "user_s": busy * wall_s * 0.25,
        "system_s": busy * wall_s * 0.75,
        "runnable_wait_s": None if waiting is None else waiting * wall_s,
        "wall_s": wall_s,
    }


def load(*threads: dict[str, Any], side: str = "local", **changes: Any) -> dict[str, Any]:
    return {
        "side": side,
        "wall_s": 10.0,
        "threads": list(threads or (thread(),)),
        "pushback": 0,
        "socket_drops": None,
        **changes,
    }


def flow(number: int, start_ns: int | None, end_ns: int | None, **changes: Any) -> dict[str, Any]:
    """A `FlowReport`."""
    return {
        "flow": number,
        "direction": "up",
        "due_ns": EPOCH_NS,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "sent_bytes": 0,
        "received_bytes": 0,
        **changes,
    }


def outcome(flows: Sequence[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    return {
        "flows": list(flows),
        "histograms": [],
        "errors": {},
        "generator": load(),
        "receiver": load(side="peer"),
        "counts": {},
        **changes,
    }


def finished(t_ns: int, made: dict[str, Any], trial: str = "c01/1/t", task: str = "load") -> dict[str, Any]:
    return {"type": "finished", "trial": trial, "task": task, "t_ns": t_ns, "outcome": made}


def progress(
    t_ns: int,
    rows: Sequence[dict[str, Any]],
    *,
    side: str = "peer",
    histograms: Sequence[dict[str, Any]] = (),
    trial: str = "c01/1/t",
    task: str = "load",
) -> dict[str, Any]:
    return {
        "type": "progress",
        "trial": trial,
        "task": task,
        "t_ns": t_ns,
        "side": side,
        "flows": list(rows),
        "histograms": list(histograms),
    }


def counters(number: int, sent: int = 0, received: int = 0, **units: int | None) -> dict[str, Any]:
    return {"flow": number, "sent_bytes": sent, "received_bytes": received, **units}


def observation(
    t_ns: int,
    cpu_s: dict[str, float] | None = None,
    processes: Sequence[dict[str, Any]] = (),
    *,
    cpus: int = 2,
    cgroup_s: float | None = None,
    observer_cpu_s: float = 0.0,
    interfaces: Mapping[str, tuple[int, int]] | None = None,
) -> dict[str, Any]:
    """One sample; `cpu_s` is the sum over the CPUs by kind, dealt out evenly; `interfaces` count bytes in and out."""
    kinds = ("user", "system", "idle", "iowait", "irq", "softirq", "steal")
    machine = None
    if cpu_s is not None:
        rows = [{"cpu": cpu, **{f"{kind}_s": cpu_s.get(kind, 0.0) / cpus for kind in kinds}} for cpu in range(cpus)]
        memory = {"total_bytes": 1000, "available_bytes": 400}
        machine = {"cpus": rows, "memory": memory, "pressure": {}, "softnet": []}
    return {
        "type": "observation",
        "trial": None,
        "t_ns": t_ns,
        "observer_cpu_s": observer_cpu_s,
        "machine": machine,
        "network": {"interfaces": rows_of(interfaces or {}), "tcp": None, "udp": None},
        "cgroup": {"usage_s": cgroup_s} if cgroup_s is not None else None,
        "processes": list(processes),
    }


def rows_of(interfaces: Mapping[str, tuple[int, int]]) -> list[dict[str, Any]]:
    """`InterfaceSample`s of interfaces by name: bytes received and sent."""
    others = {f"{way}_{what}": 0 for way in ("rx", "tx") for what in ("packets", "errors", "dropped")}
    return [{"name": name, "rx_bytes": rx, "tx_bytes": tx, **others} for name, (rx, tx) in interfaces.items()]


def process(name: str, pid: int, user_s: float, system_s: float, resident_bytes: int, **others: Any) -> dict[str, Any]:
    return {
        "name": name,
        "pid": pid,
        "user_s": user_s,
        "system_s": system_s,
        "resident_bytes": resident_bytes,
        "threads": 1,
        "voluntary_switches": None,
        "involuntary_switches": None,
        "busiest_thread": None,
        **others,
    }


def facts(boot_id: str = BOOT, **changes: Any) -> dict[str, Any]:
    return {
        "hostname": "bench",
        "boot_id": boot_id,
        "kernel": "6.18",
        "architecture": "x86_64",
        "cpus": 2,
        "clock": {"synchronised": True},
        "interfaces": [],
        **changes,
    }


def steady_flow_events(
    number: int,
    start_ns: int,
    end_ns: int,
    bytes_per_s: float,
    step_ns: int = 100 * MS,
    **report: Any,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A flow that delivers evenly from its first to its last byte: its report, and what its receiver counted."""

    def moved(t_ns: int) -> int:
        return round(bytes_per_s * max(0, min(t_ns, end_ns) - start_ns) / S)

    events = [
        progress(t_ns, [counters(number, moved(t_ns), moved(t_ns))])
        for t_ns in range(EPOCH_NS + step_ns, end_ns + step_ns, step_ns)
    ]
    total = moved(end_ns)
    return flow(number, start_ns, end_ns, sent_bytes=total, received_bytes=total, **report), events


def test_data(kind: str = "tcp", hosts: tuple[str, ...] = ("client1",), **spec: Any) -> TestData:
    """An empty test that was to last 10 s."""
    test = {"name": "t", "kind": kind, "duration_ms": 10_000, "interval_ms": 100, **spec}
    return TestData(spec=TestSpec.read(test), hosts=hosts, start_at_ns=EPOCH_NS)


test_data.__test__ = False  # type: ignore[attr-defined]


def steady_test(kind: str = "tcp", bytes_per_s: float = 1e6, received: int = 10_000, **changes: Any) -> TestData:
    """A valid test: one flow, 10 s, an even rate, generator and receiver half busy; `received` of 10,000 units."""
    data = test_data(kind)
    units = {}
    if kind != "tcp":
        units = {"sent_units": 10_000, "received_units": received}
    report, events = steady_flow_events(0, EPOCH_NS, EPOCH_NS + 10 * S, bytes_per_s, **units)
    if data.spec.counts_units:
        for event in events:
            event["side"] = "local"
            share = min(1.0, (event["t_ns"] - EPOCH_NS) / (10 * S))
            event["flows"][0] |= {"sent_units": round(10_000 * share), "received_units": round(received * share)}
    for event in events:
        data.add("client1", event)
    data.add("client1", finished(EPOCH_NS + 10 * S, outcome([report], **changes)))
    return data


steady_test.__test__ = False  # type: ignore[attr-defined]


class MadeRun:
    """A journal of a run with one gateway: hosts, clocks, trials and tests with even rates."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.offsets_ns = {"client1": 7 * S, "gateway": -3 * S, "server": 0}
        self.now_ns = EPOCH_NS - 60 * S

    def record(self, record: str, **fields: Any) -> None:
        self.entries.append({"record": record, "at_ns": self.now_ns, **fields})

    def event(self, host: str, event: dict[str, Any]) -> None:
        """An event whose instants are the controller's; they are moved to the host's own clock."""
        shifted = _shifted(event, self.offsets_ns[host])
        self.entries.append({"host": host, "at_ns": event.get("t_ns", self.now_ns) + 50_000, "event": shifted})

    def begin(self, **fields: Any) -> None:
        self.record("run-begin", plan={"name": "made"}, **fields)

    def begin_trial(self, trial: str, **parameters: Any) -> None:
        case, _, repeat = trial.partition("/")
        self.record("trial-begin", trial=trial, case=case, repeat=int(repeat), parameters=parameters)
        for host, offset_ns in self.offsets_ns.items():
            hello = {
                "type": "hello",
                "t_ns": self.now_ns,
                "agent_version": "0.1.0",
                "host": facts(),
                "capabilities": [],
            }
            self.event(host, hello)
            self.record("clock", host=host, offset_ns=offset_ns, bound_ns=1000)
        client = {"host": "client1", "state": "connected", "time_s": 0.5, "missing": [], "cause": None}
        self.record("bring-up", trial=trial, sut="openvpn", version="2.6.14", clients=[client], processes=["openvpn"])

    def test(
        self, trial: str, bytes_per_s: float, *, end: bool = True, begin_ns: int = EPOCH_NS, name: str = "tcp-up"
    ) -> None:
        """A TCP test of 10 s at an even rate; the gateway's CPUs are 40 % user, 60 % system, openvpn 30 % and 50 %."""
        label = f"{trial}/{name}"
        test = {"name": name, "kind": "tcp", "duration_ms": 10_000, "interval_ms": 100, "direction": "up"}
        self.record("test-begin", label=label, test=test, hosts=["client1"], start_at_ns=begin_ns)
        shift = begin_ns - EPOCH_NS
        report, events = steady_flow_events(0, EPOCH_NS, EPOCH_NS + 10 * S, bytes_per_s)
        for step, event in enumerate(events, start=1):
            since_s = step / 10
            cpu_s = {"user": 0.4 * since_s, "system": 0.6 * since_s, "idle": 1.0 * since_s}
            own = [process("openvpn", 9, 0.3 * since_s, 0.5 * since_s, 8_000_000)]
            sample = observation(
                event["t_ns"] + shift, cpu_s, own, cgroup_s=0.98 * since_s, observer_cpu_s=since_s / 500
            )
            self.event("gateway", sample)
            self.event("client1", _shifted({**event, "trial": label}, shift))
        if end:
            self.event("client1", _shifted(finished(EPOCH_NS + 10 * S, outcome([report]), trial=label), shift))
            self.record("test-end", label=label, status="done", error=None)

    def end_trial(self, trial: str, status: str = "done", error: dict[str, str] | None = None) -> None:
        self.record("trial-end", trial=trial, status=status, error=error)

    def end(self, status: str = "done") -> None:
        self.record("run-end", status=status)


_INSTANTS = frozenset({"t_ns", "due_ns", "start_ns", "end_ns"})


def _shifted(value: Any, by_ns: int) -> Any:
    if isinstance(value, dict):
        return {
            key: part + by_ns if key in _INSTANTS and part is not None else _shifted(part, by_ns)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [_shifted(part, by_ns) for part in value]
    return value
