"""Turns events into rows of `samples`: one number each, named with its unit, distinguished by labels.

| metric | labels | from |
|---|---|---|
| `cpu_{user,system,idle,iowait,irq,softirq,steal}_s` | cpu | seconds since boot |
| `clock_mhz`, `clock_{core,package}_throttles` | cpu | once a second |
| `memory_{total,available}_bytes` | | the machine |
| `pressure_{some,full}_us` | resource | stalled since boot |
| `softnet_{processed,dropped,squeezed}` | cpu | frames since boot |
| `interface_{rx,tx}_{bytes,packets,errors,dropped}` | interface | since it was made |
| `tcp_*`, `udp_*` | | RFC 4022 and RFC 4113 counters of the host |
| `cgroup_{usage,user,system,throttled}_s`, `cgroup_memory_bytes` | | the host's processes |
| `quota_cpus`, `quota_throttled_{periods,s}` | group | a CPU quota from above, once a second |
| `process_{user,system}_s`, `process_resident_bytes`, `process_threads`, `process_*_switches` | process, pid | |
| `thread_cpu_s` | process, pid, tid | its busiest thread since the row before, once a second |
| `observer_cpu_s` | | what observing has cost |
| `flow_{sent,received}_{bytes,units}` | task, flow, side | since the task began |
| `flow_{rtt,busy,receiver_limited}_us` ... | task, flow, side | TCP_INFO of that side, if it reported it |

Counters are cumulative as in the contract; unknown values have no row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, TypeAlias

Part: TypeAlias = tuple["Names", tuple[str | int, ...]]
"""The description of a record's numbers: their names, and their common labels (keys and values in turn)."""

_NO_LABELS = ()
_ROW_KEYS = frozenset({"cpu", "name", "pid", "tid", "flow", "group", "kind", "busiest_thread"})


class Names:
    """The names of a record's numbers. Compared by identity, which is fast."""

    __slots__ = ("metrics", "read")

    def __init__(self, prefix: str, keys: tuple[str, ...]) -> None:
        numbers = [key for key in keys if key not in _ROW_KEYS]
        self.metrics = tuple(prefix + key for key in numbers)
        self.read: Callable[[Mapping[str, Any]], tuple[Any, ...]] = (
            itemgetter(*numbers) if len(numbers) > 1 else lambda row: tuple(row[key] for key in numbers)
        )


def observation(event: Mapping[str, Any], values: list[Any]) -> list[Part]:
    """Append every number of an `observation` event to `values`; returns their descriptions, in the same order.

    An unknown number is None.
    """
    values.append(event["observer_cpu_s"])
    parts: list[Part] = [(_names("", ("observer_cpu_s",)), _NO_LABELS)]
    machine = event.get("machine")
    if machine:
        _machine(machine, parts, values)
    network = event["network"]
    for row in network["interfaces"]:
        _numbers("interface_", ("interface", row["name"]), row, parts, values)
    for row in network.get("queues") or ():
        _numbers("queue_", ("interface", row["name"], "kind", row["kind"]), row, parts, values)
    for protocol in ("tcp", "udp"):
        _numbers(f"{protocol}_", _NO_LABELS, network.get(protocol), parts, values)
    _numbers("cgroup_", _NO_LABELS, event.get("cgroup"), parts, values)
    quota = event.get("quota")
    if quota:
        _numbers("quota_", ("group", quota["group"]), quota, parts, values)
    for row in event["processes"]:
        labels = ("process", row["name"], "pid", row["pid"])
        _numbers("process_", labels, row, parts, values)
        busiest = row.get("busiest_thread")
        if busiest:
            _numbers("thread_", (*labels, "tid", busiest["tid"]), busiest, parts, values)
    return parts


def progress(event: Mapping[str, Any], values: list[Any]) -> list[Part]:
    """Append every counter of a `progress` event to `values`; returns their descriptions, as `observation` does."""
    parts: list[Part] = []
    side, task = event["side"], event["task"]
    for row in event["flows"]:
        _numbers("flow_", ("flow", row["flow"], "side", side, "task", task), row, parts, values)
    return parts


def columns(part: Part) -> tuple[tuple[str, ...], str]:
    """The metrics of a part's numbers, and their common labels as a JSON object in a string."""
    names, labels = part
    return names.metrics, _labels(*labels)


def _machine(machine: Mapping[str, Any], parts: list[Part], values: list[Any]) -> None:
    for row in machine["cpus"]:
        _numbers("cpu_", ("cpu", row["cpu"]), row, parts, values)
    for row in machine.get("clocks") or ():
        _numbers("clock_", ("cpu", row["cpu"]), row, parts, values)
    _numbers("memory_", _NO_LABELS, machine["memory"], parts, values)
    for resource, row in machine["pressure"].items():
        _numbers("pressure_", ("resource", resource), row, parts, values)
    for row in machine["softnet"]:
        _numbers("softnet_", ("cpu", row["cpu"]), row, parts, values)


def _numbers(
    prefix: str, labels: tuple[str | int, ...], row: Mapping[str, Any] | None, parts: list[Part], values: list[Any]
) -> None:
    if not row:
        return
    names = _names(prefix, tuple(row))
    values += names.read(row)
    parts.append((names, labels))


# The contract has about twenty kinds of records; a garbled journal may have any number.
@lru_cache(maxsize=4096)
def _names(prefix: str, keys: tuple[str, ...]) -> Names:
    return Names(prefix, keys)


@lru_cache(maxsize=65536)
def _labels(*pairs: str | int) -> str:
    """Keys and values in turn, as a JSON object with sorted keys."""
    return json.dumps(dict(zip(pairs[::2], pairs[1::2], strict=True)), sort_keys=True, ensure_ascii=False)
