"""Draws what a host does: a line per interval, and tables of the whole, in 80 columns.

`analysis.host_usage` has computed every figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.console import RenderableType
from rich.text import Text

from leadline import quantities
from leadline.analysis.host_usage import CommandCost, HostUsage, MachineCost
from leadline.report.text import add_columns, titled_table

_PREFIXES = ("", "k", "M", "G", "T")


def head_line(*, soak: bool) -> str:
    """The titles of `usage_line`."""
    return "".join(f"{title:>{width}}" for title, width, _ in _columns(soak=soak))


def usage_line(usage: HostUsage, *, soak: bool) -> str:
    """One interval: CPU in percent of all CPUs, then memory, switches, interrupts and traffic."""
    return "".join(f"{read(usage):>{width}}" for _, width, read in _columns(soak=soak))


def _columns(*, soak: bool) -> list[tuple[str, int, Callable[[HostUsage], str]]]:
    def share(kind: str) -> Callable[[HostUsage], str]:
        return lambda usage: _percent(usage.cpu(kind))

    memory = ("mem", 5, lambda usage: _percent(_memory_share(usage)))
    left: list[tuple[str, int, Callable[[HostUsage], str]]] = [("left", 6, share("left"))] if soak else []
    return [
        ("s", 6, lambda usage: f"{usage.end_s:.1f}"),
        ("usr", 5, share("user")),
        ("sys", 5, share("system")),
        ("sirq", 5, share("softirq")),
        ("stl", 5, share("steal")),
        ("wai", 5, share("iowait")),
        *left,
        memory,
        ("csw/s", 7, lambda usage: _short(usage.context_switches_per_s)),
        ("int/s", 7, lambda usage: _short(usage.interrupts_per_s)),
        ("rx b/s", 7, lambda usage: _short(usage.traffic("rx_bps"))),
        ("tx b/s", 7, lambda usage: _short(usage.traffic("tx_bps"))),
        ("drop", 5, lambda usage: _short(usage.traffic("dropped"))),
        ("retr", 5, lambda usage: _short(usage.tcp_retransmits)),
    ]


def usage_tables(total: HostUsage) -> list[RenderableType]:
    """The whole time: each CPU, the interfaces that carried anything, disks, processes, and the rest."""
    parts = [
        _cpus(total),
        _interfaces(total),
        _disks(total),
        _processes(total),
        _others(total),
    ]
    return [part for part in parts if part is not None]


def command_cost(cost: CommandCost, machine: MachineCost) -> RenderableType:
    """What a command cost, beside what the machine did meanwhile."""
    how = f"signal {cost.signal}" if cost.signal is not None else f"exit code {cost.code}"
    own = f"{_s(cost.user_s)} user, {_s(cost.system_s)} system, with the children that it waited for"
    rows: list[tuple[str, str | None]] = [
        ("command", f"{' '.join(cost.argv)[:50]}: {how}"),
        ("elapsed", _s(cost.elapsed_s)),
        ("its CPU", own),
        ("its memory", _most(cost.max_resident_bytes)),
        ("machine", f"{_s(machine.user_s)} user, {_s(machine.system_s)} system, {_s(machine.softirq_s)} interrupts"),
        ("packets", f"{machine.rx_packets:,} received, {machine.tx_packets:,} sent"),
    ]
    return _listed(rows)


def _most(resident_bytes: int | None) -> str:
    known = resident_bytes is not None
    return f"{quantities.memory(resident_bytes)} at most, in one process" if known else "less than this program's"


def _s(seconds: float | None) -> str:
    return f"{quantities.fixed(seconds, 2)} s"


def _cpus(total: HostUsage) -> RenderableType:
    soaked = any(one.left is not None for one in total.cpus)
    note = "percent of each; left: by the soaker, and by the kernel" if soaked else "percent of each"
    drawn = titled_table("CPUs", note)
    kinds = ("user", "system", "softirq", "steal", "iowait", "idle")
    right = ("usr", "sys", "sirq", "stl", "wai", "idl", "MHz", *(("left", "kernel", "speed") if soaked else ()))
    add_columns(drawn, left=("cpu",), right=right)
    for one in total.cpus:
        cells = [_tenths(getattr(one, kind)) for kind in kinds]
        cells.append(quantities.count(one.mhz))
        if soaked:
            cells += [_tenths(one.left), _tenths(one.left_by_kernel), _tenths(one.speed)]
        drawn.add_row(str(one.cpu), *cells)
    return drawn


def _interfaces(total: HostUsage) -> RenderableType | None:
    busy = [one for one in total.interfaces if one.rx_packets + one.tx_packets + one.dropped + one.errors]
    if not busy:
        return None
    drawn = titled_table("Interfaces", "")
    add_columns(drawn, left=("interface",), right=("received", "packets", "sent", "packets", "dropped", "errors"))
    for one in busy:
        drawn.add_row(
            Text(one.name),
            quantities.bit_rate(one.rx_bps),
            quantities.per_second(one.rx_packets_per_s),
            quantities.bit_rate(one.tx_bps),
            quantities.per_second(one.tx_packets_per_s),
            quantities.count(one.dropped),
            quantities.count(one.errors),
        )
    return drawn


def _disks(total: HostUsage) -> RenderableType | None:
    busy = [one for one in total.disks if one.operations_per_s]
    if not busy:
        return None
    drawn = titled_table("Disks", "")
    add_columns(drawn, left=("disk",), right=("read/s", "written/s", "operations", "busy"))
    for one in busy:
        rates = (quantities.transfer(one.read_bytes_per_s), quantities.transfer(one.written_bytes_per_s))
        drawn.add_row(Text(one.name), *rates, quantities.per_second(one.operations_per_s), quantities.share(one.busy))
    return drawn


def _processes(total: HostUsage) -> RenderableType | None:
    if not total.processes:
        return None
    drawn = titled_table("Processes", "percent of one CPU")
    add_columns(drawn, left=("process", "pid"), right=("usr", "sys", "memory", "threads"))
    for one in total.processes:
        cells = (_tenths(one.user), _tenths(one.system), quantities.memory(one.resident_bytes), str(one.threads))
        drawn.add_row(Text(one.name), str(one.pid), *cells)
    return drawn


def _others(total: HostUsage) -> RenderableType:
    stalled = ", ".join(
        f"{name} {quantities.share(share)}" for name, share in total.pressure.items() if share is not None
    )
    switches = quantities.per_second(total.context_switches_per_s)
    rows: list[tuple[str, str | None]] = [
        ("time", quantities.seconds(total.length_s)),
        ("memory", f"{quantities.memory(total.memory_used_bytes)} of {quantities.memory(total.memory_total_bytes)}"),
        ("switches", f"{switches}, interrupts {quantities.per_second(total.interrupts_per_s)}"),
        ("stalled", stalled or None),
        ("TCP", f"{quantities.count(total.tcp_retransmits)} of {quantities.count(total.tcp_segments)} segments again"),
        ("backlog", f"{total.backlog_drops:,} frames dropped" if total.backlog_drops else None),
        ("quota", _quota(total)),
        ("heat", f"cores slowed down {total.thermal_throttles:,} times" if total.thermal_throttles else None),
        ("observing", f"{quantities.share(total.observer)} of one CPU"),
    ]
    return _listed(rows)


def _listed(rows: Iterable[tuple[str, str | None]]) -> RenderableType:
    lines = [Text.assemble((f"  {name:<12}", "bold"), value) for name, value in rows if value is not None]
    return Text("\n").join(lines)


def _quota(total: HostUsage) -> str | None:
    if total.quota_cpus is None:
        return None
    return f"{total.quota_cpus:g} CPUs, threads held back {quantities.seconds(total.quota_throttled_s)}"


def _memory_share(usage: HostUsage) -> float | None:
    if usage.memory_used_bytes is None or not usage.memory_total_bytes:
        return None
    return usage.memory_used_bytes / usage.memory_total_bytes


def _percent(share: float | None) -> str:
    return quantities.fixed(None if share is None else 100 * share, 0)


def _tenths(share: float | None) -> str:
    return quantities.fixed(None if share is None else 100 * share, 1)


def _short(value: float | None) -> str:
    """Three digits and a prefix: `941M`, `12.3k`."""
    if value is None:
        return quantities.UNKNOWN
    scaled, step = float(value), 0
    while scaled >= 999.5 and step < len(_PREFIXES) - 1:
        scaled, step = scaled / 1000, step + 1
    return f"{round(scaled)}" if step == 0 else f"{quantities.significant(scaled)}{_PREFIXES[step]}"
