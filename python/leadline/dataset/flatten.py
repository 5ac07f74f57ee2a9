"""Turns events into rows of `samples`: one number each, named with its unit, told apart by labels. Interprets nothing.

| metric | labels | from |
|---|---|---|
| `cpu_{user,system,idle,iowait,irq,softirq,steal}_s` | cpu | seconds since boot |
| `memory_{total,available}_bytes` | | the machine |
| `pressure_{some,full}_us` | resource | stalled since boot |
| `softnet_{processed,dropped,squeezed}` | cpu | frames since boot |
| `interface_{rx,tx}_{bytes,packets,errors,dropped}` | interface | since it was made |
| `tcp_*`, `udp_*` | | RFC 4022 and RFC 4113 counters of the host |
| `cgroup_{usage,user,system,throttled}_s`, `cgroup_memory_bytes` | | the host's processes |
| `process_{user,system}_s`, `process_resident_bytes`, `process_threads`, `process_*_switches` | process, pid | |
| `observer_cpu_s` | | what observing has cost |
| `flow_{sent,received}_{bytes,units}` | task, flow, side | since the task began |

Counters are cumulative as in the contract; what was not known has no row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

Emit = Callable[[str, str, float], None]
"""Takes metric, labels as a JSON object in a string, and value."""

_NO_LABELS = "{}"
_ROW_KEYS = frozenset({"cpu", "name", "pid", "flow"})


def observation(event: Mapping[str, Any], emit: Emit) -> None:
    """Every number of an `observation` event."""
    emit("observer_cpu_s", _NO_LABELS, event["observer_cpu_s"])
    machine = event.get("machine")
    if machine:
        _machine(machine, emit)
    network = event["network"]
    for row in network["interfaces"]:
        _numbers("interface_", row, _labels("interface", row["name"]), emit)
    for protocol in ("tcp", "udp"):
        _numbers(f"{protocol}_", network.get(protocol) or {}, _NO_LABELS, emit)
    _numbers("cgroup_", event.get("cgroup") or {}, _NO_LABELS, emit)
    for row in event["processes"]:
        _numbers("process_", row, _labels("process", row["name"], "pid", row["pid"]), emit)


def progress(event: Mapping[str, Any], emit: Emit) -> None:
    """Every counter of a `progress` event."""
    for row in event["flows"]:
        labels = _labels("flow", row["flow"], "side", event["side"], "task", event["task"])
        _numbers("flow_", row, labels, emit)


def _machine(machine: Mapping[str, Any], emit: Emit) -> None:
    for row in machine["cpus"]:
        _numbers("cpu_", row, _labels("cpu", row["cpu"]), emit)
    _numbers("memory_", machine["memory"], _NO_LABELS, emit)
    for resource, row in machine["pressure"].items():
        _numbers("pressure_", row or {}, _labels("resource", resource), emit)
    for row in machine["softnet"]:
        _numbers("softnet_", row, _labels("cpu", row["cpu"]), emit)


def _numbers(prefix: str, row: Mapping[str, Any], labels: str, emit: Emit) -> None:
    for key, value in row.items():
        if value is not None and key not in _ROW_KEYS:
            emit(prefix + key, labels, value)


@lru_cache(maxsize=65536)
def _labels(*pairs: str | int) -> str:
    """Keys and values in turn, as a JSON object with its keys in order."""
    return json.dumps(dict(zip(pairs[::2], pairs[1::2], strict=True)), sort_keys=True, ensure_ascii=False)
