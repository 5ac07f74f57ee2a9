"""Draws plans for gateways: the cost, what links need, what a CPU carries. `analysis.sizing` has computed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.size_model import Bounded, GatewayCost, LinkNeed
from leadline.analysis.sizing import Size, is_useless


def size_blocks(sizes: Sequence[Size]) -> Iterator[RenderableType]:
    """One block for each cost."""
    return (_block(one) for one in sizes)


def name_of(cost: GatewayCost) -> str:
    """`openvpn udp, gateway`."""
    return ", ".join(part for part in (f"{cost.system} {cost.kind}".strip(), cost.host) if part)


def cost_lines(cost: GatewayCost) -> list[str]:
    """The cost in words, with what it rests on."""
    least = "at most " if cost.at_most else ""
    parts = []
    if cost.per_packet_ns is not None:
        parts.append(f"{_time(cost.per_packet_ns)} for each packet")
    parts.append(_per_byte(cost.per_byte_ns))
    lines = [f"{least}{' and '.join(parts)}"] if cost.points else []
    if is_useless(cost):
        lines = [f"{lines[0]}: {cost.notes[-1]}", *cost.notes[:-1]]
    if cost.clients is not None:
        lines += _client_lines(cost)
    return [*lines, *(() if is_useless(cost) else cost.notes)]


def link_titles(needs: Sequence[LinkNeed], cpu: str | None) -> tuple[str, ...]:
    """The titles of the columns: the link, its rate, and for each packet size the clock that it needs; and how many
    CPUs that is, where `cpu` names one."""
    titles = ["link", "Mbit/s"]
    for size in dict.fromkeys(need.packet_bytes for need in needs):
        packets = "" if size is None else f"{size:.0f} B: "
        titles += [f"{packets}needs", "planned"] if needs[0].hz is not None else []
        titles += [f"{packets}{cpu}" if needs[0].hz is None else cpu] if cpu is not None else []
    return tuple(titles)


def link_rows(needs: Sequence[LinkNeed], cpu: str | None) -> list[tuple[str, ...]]:
    """The cells of each link."""
    rows: dict[str, list[str]] = {}
    for need in needs:
        cells = rows.setdefault(need.link, [need.link, quantities.significant(need.bps / 1e6)])
        cells += [frequency(need.hz), frequency(need.planned_hz)] if need.hz is not None else []
        if cpu is not None:
            cells.append(quantities.UNKNOWN if need.cpus is None else quantities.significant(need.cpus, 2))
    return [tuple(cells) for cells in rows.values()]


def frequency(hz: float | None) -> str:
    """`25.0 MHz`, `2.50 GHz`."""
    if hz is None:
        return quantities.UNKNOWN
    for factor, unit in ((1e9, "GHz"), (1e6, "MHz")):
        if hz >= 0.9995 * factor:
            return f"{quantities.significant(hz / factor)} {unit}"
    return f"{quantities.significant(hz / 1e3)} kHz"


def _block(size: Size) -> RenderableType:
    cost = size.cost
    if is_useless(cost):
        return Group(Text(name_of(cost), style="bold"), *map(_line, cost_lines(cost)), "")
    cycles = [
        f"{quantities.significant(value)} cycles for each {what}"
        for value, what in ((size.cycles_per_packet, "packet"), (size.cycles_per_byte, "byte"))
        if value
    ]
    parts: list[RenderableType] = [Text(name_of(cost), style="bold")]
    parts += [_line(line) for line in cost_lines(cost)]
    parts += [_line(" and ".join(cycles))] if cycles else []
    if size.hz is None:
        parts.append(_line("--frequency, the clock of the measured CPU, gives cycles and MHz"))
    is_given = not cost.points and size.hz == cost.clock_hz
    cpu = None if is_given else "CPUs" if size.hz is None else f"CPUs of {frequency(size.hz)}"
    busy = quantities.rounded_share(size.busy)
    parts.append(Text(f"What CPU a link needs, and planned to be {busy} busy", style="underline"))
    parts.append(Padding(_link_table(size.links, cpu), (0, 0, 0, 2), expand=False))
    parts += [] if is_given else _carried(size, busy)
    return Group(*parts, "")


def _link_table(needs: Sequence[LinkNeed], cpu: str | None) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for number, title in enumerate(link_titles(needs, cpu)):
        table.add_column(title, justify="right" if number else "left")
    for cells in link_rows(needs, cpu):
        table.add_row(*cells)
    return table


def _carried(size: Size, busy: str) -> list[RenderableType]:
    clock = "like the measured one" if size.hz is None else f"of {frequency(size.hz)}"
    cores = "1 core" if size.cores == 1 else f"{size.cores} cores"
    alone = f", of which the system uses {size.usable}" if size.usable < size.cores else ""
    lines: list[RenderableType] = [Text("What link a CPU carries", style="underline")]
    for one in size.carried:
        packets = "" if one.packet_bytes is None else f" in packets of {one.packet_bytes:.0f} bytes"
        most, planned = quantities.bit_rate(one.bps), quantities.bit_rate(one.planned_bps)
        within = _between(one.bps_low, one.bps_high, quantities.bit_rate)
        lines.append(_line(f"{cores} {clock}{alone}: {planned} at {busy}, {most}{within} at its end{packets}"))
    return lines


def _client_lines(cost: GatewayCost) -> Iterator[str]:
    need = cost.clients
    if need is None:
        return
    load = f" at {quantities.bit_rate(need.bps_per_client)} each" if need.bps_per_client else ""
    found = []
    if need.per_cpu is not None:
        within = _between(need.per_cpu_low, need.per_cpu_high, quantities.significant)
        least = "at least " if cost.at_most else ""
        found.append(f"{least}{quantities.significant(need.per_cpu)}{within} clients{load} for each CPU")
    if need.per_gib is not None:
        within = _between(need.per_gib_low, need.per_gib_high, quantities.significant)
        found.append(f"{quantities.significant(need.per_gib)}{within} clients for each GiB of memory")
    if found:
        yield f"{', '.join(found)} (measured with {need.clients:g})"


def _per_byte(cost: Bounded) -> str:
    """A cost that does not grow with the size of packets is fitted as 0."""
    if cost.value > 0:
        return f"{_time(cost)} for each byte"
    return f"{quantities.microseconds(cost.high / 1e3)} for each byte at most" if cost.high else "none for each byte"


def _between(low: float | None, high: float | None, written: Callable[[float], str]) -> str:
    """The interval in brackets; nothing without one."""
    if low is None:
        return ""
    return f" ({written(low)} or more)" if high is None else f" ({written(low)} to {written(high)})"


def _time(cost: Bounded) -> str:
    text = quantities.microseconds(cost.value / 1e3)
    if cost.low is None or cost.high is None:
        return text
    return f"{text} ({quantities.microseconds(cost.low / 1e3)} to {quantities.microseconds(cost.high / 1e3)})"


def _line(text: str) -> RenderableType:
    return Padding(Text(text), (0, 0, 0, 2), expand=False)
