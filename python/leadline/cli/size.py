"""`leadline size`: what CPU a link needs and what link a CPU carries, from the costs of a run or from given cycles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from leadline.cli import options as o
from leadline.cli.output import print_all, print_damage, print_json, share
from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.analysis.size_model import GatewayCost
    from leadline.analysis.tier_sizing import TierNeed

NAME = "size"
EXAMPLE = "Example: leadline size runs/*-gateway-* --link 1gbit --cpu 3GHz --cores 4"
Value = TypeVar("Value")
_LEAST_CYCLES, _MOST_CYCLES = 1e-6, 1e9
_FASTEST_LINK_BPS = 10**15
_LEAST_BUSY = 0.001
"""Beyond these, no gateway: their figures would be beyond all units, or infinite."""


def command(
    run: Annotated[
        Path | None, typer.Argument(help="A run with a gateway: its costs are used.", show_default=False)
    ] = None,
    cycles_per_byte: Annotated[
        float | None,
        typer.Option(help="CPU cycles for each byte, instead of a run.", metavar="CYCLES", show_default=False),
    ] = None,
    cycles_per_packet: Annotated[
        float | None,
        typer.Option(help="CPU cycles for each packet, instead of a run.", metavar="CYCLES", show_default=False),
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option(help="Payload rate of a link; repeatable. Default: DSL to 100 Gbit/s.", metavar="RATE"),
    ] = None,
    packet: Annotated[
        list[int] | None,
        typer.Option(help="Payload of each packet, bytes; repeatable. Default: 1400 and 64.", metavar="BYTES"),
    ] = None,
    cpu: Annotated[
        str | None,
        typer.Option(help="Clock of the CPU to plan with: 3GHz. Default: the measured one.", metavar="FREQUENCY"),
    ] = None,
    cores: Annotated[int, typer.Option(help="Cores of the CPU to plan with.", min=1, max=4096)] = 1,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads that share the work. Default: as measured.", min=1, metavar="N", show_default=False),
    ] = None,
    frequency: Annotated[
        str | None,
        typer.Option(help="Clock of the run's gateway, if its kernel does not report it.", metavar="FREQUENCY"),
    ] = None,
    busy: Annotated[
        str, typer.Option(help="Share of the CPU that the gateway is planned to use.", metavar="SHARE")
    ] = "70%",
    rate: Annotated[
        list[str] | None,
        typer.Option(
            help="Requests per second to plan a stack's tiers for; repeatable. Default: 1k, 5k and 10k.", metavar="RATE"
        ),
    ] = None,
    json: o.Json = False,
) -> int:
    """Plan a gateway: the CPU for a link, the link for a CPU. Of a stack: the CPUs of each tier for a rate.

    The number of clients that fit is named too. A run with several packet sizes separates the cost of a packet from
    that of a byte. Links are rates of payload, one direction; for both, add them.
    """
    of_gateways = {"--link": link, "--packet": packet, "--cpu": cpu, "--threads": threads, "--frequency": frequency}
    from leadline.analysis.sizing import PACKETS, Asked, sized
    from leadline.plan import units
    from leadline.plan.field_types import LARGEST_UDP_PAYLOAD_BYTES

    asked = Asked(
        links=[(text, _link_bps(text)) for text in link or ()],
        packets=[float(octets) for octets in packet or ()] or list(PACKETS),
        hz=_read("--cpu", units.frequency_hz, cpu) if cpu is not None else None,
        cores=cores,
        threads=threads,
        busy=_busy(busy),
    )
    if not all(1 <= octets <= LARGEST_UDP_PAYLOAD_BYTES for octets in asked.packets):
        raise InputError(f"--packet: a packet's payload has 1 to {LARGEST_UDP_PAYLOAD_BYTES:,} bytes")
    if frequency is not None and run is None:
        raise InputError("--frequency is the clock of a measured gateway: it goes with RUN", hint="leave it out")
    costs = _given(cycles_per_byte, cycles_per_packet, run)
    if (needs := _of_stack(run, rate, asked.busy, of_gateways)) is not None:
        return _print_tiers(needs, asked.busy, is_json=json)
    costs = costs or _of_run(run, frequency)
    found = [sized(cost, asked) for cost in costs]
    if json:
        print_json({"schema": "leadline.size/1", "sizes": found})
        return 0
    from leadline.report.sizes import size_blocks

    print_all(size_blocks(found))
    return 0


def _of_stack(
    run: Path | None, rates: Sequence[str] | None, busy: float, of_gateways: Mapping[str, object]
) -> list[TierNeed] | None:
    """What the tiers of the run's stacks need; None for a run without a stack. `of_gateways` are the options that plan
    a gateway."""
    from leadline.analysis.tier_sizing import RATES_PER_S, plan_tiers
    from leadline.dataset import RunFolder
    from leadline.trial import read_findings

    if run is None:
        if rates:
            raise InputError("--rate plans a measured stack: it goes with RUN", hint="name a run, or leave it out")
        return None
    folder = RunFolder.open(run)
    analysis = read_findings(folder)
    if not any(test.tiers for trial in analysis.trials for test in trial.tests):
        if rates:
            raise InputError("--rate plans the tiers of a stack, which this run has not", hint="give --link")
        return None
    if given := next((option for option, value in of_gateways.items() if value), None):
        raise InputError(f"{given} plans a gateway, and this run is of a stack", hint="give --rate, or leave it out")
    print_damage(folder.run_id, analysis)
    needs = list(plan_tiers(analysis, [_rate_per_s(text) for text in rates or ()] or RATES_PER_S, busy))
    if not needs:
        raise InputError(f"{run}: no tier's CPU time a request is known in this run")
    return needs


def _rate_per_s(text: str) -> float:
    from leadline.plan import units

    per_s = _read("--rate", units.per_second, text)
    if not 0 < per_s <= _MOST_CYCLES:
        raise InputError(f"--rate {text}: it must be above 0 and at most 1G/s", hint="as in --rate 5k")
    return float(per_s)


def _print_tiers(needs: list[TierNeed], busy: float, *, is_json: bool) -> int:
    if is_json:
        print_json({"schema": "leadline.tier-size/1", "busy": busy, "tiers": needs})
        return 0
    from leadline.report.tier_sizes import tier_size_blocks

    print_all(tier_size_blocks(needs, busy))
    return 0


def _given(per_byte: float | None, per_packet: float | None, run: Path | None) -> Sequence[GatewayCost]:
    """The cost that the options give; empty if they give none."""
    from leadline.analysis.sizing import given_cost

    options = {"--cycles-per-byte": per_byte, "--cycles-per-packet": per_packet}
    values = {option: value for option, value in options.items() if value is not None}
    if not values:
        return []
    if run is not None:
        raise InputError("a run and given cycles exclude each other", hint="leave one of them out")
    for option, value in values.items():
        if value != 0 and not _LEAST_CYCLES <= value <= _MOST_CYCLES:
            limits = f"from {_LEAST_CYCLES:f} to {_MOST_CYCLES:,.0f}"
            raise InputError(f"{option} {value:g}: not a number of cycles {limits}", hint=f"as in {option} 140")
    if not any(values.values()):
        raise InputError("--cycles-per-byte, --cycles-per-packet: one of them has to be above 0")
    return [given_cost(per_packet or 0.0, per_byte or 0.0)]


def _of_run(run: Path | None, frequency: str | None) -> Sequence[GatewayCost]:
    from leadline.analysis.sizing import clocked
    from leadline.dataset import RunFolder
    from leadline.plan import units
    from leadline.trial import read_findings

    if run is None:
        raise InputError("nothing to plan with", hint="name a run, or give --cycles-per-byte 140")
    folder = RunFolder.open(run)
    analysis = read_findings(folder)
    print_damage(folder.run_id, analysis)
    if not analysis.sizing:
        raise InputError(
            f"{run}: no gateway's CPU time for packets with payload is known in this run",
            hint="its tests need a gateway that is observed, and load through it with 32 bytes or more in each packet",
        )
    hz = _read("--frequency", units.frequency_hz, frequency) if frequency is not None else None
    return [clocked(cost, hz) for cost in analysis.sizing]


def _link_bps(text: str) -> float:
    from leadline.plan import units

    bps = _read("--link", units.rate_bps, text)
    if not 0 < bps <= _FASTEST_LINK_BPS:
        raise InputError(f"--link {text}: a rate must be above 0 and at most 1,000 Tbit/s", hint="as in --link 1gbit")
    return float(bps)


def _busy(text: str) -> float:
    found = 1.0 if text.strip() in ("100%", "1", "1.0") else share("--busy", text)
    if found < _LEAST_BUSY:
        raise InputError(f"--busy {text}: it has to be 0.1% or more", hint="as in --busy 70%")
    return found


def _read(option: str, read: Callable[[str], Value], text: str) -> Value:
    from leadline.plan.units import UnitError

    try:
        return read(text)
    except UnitError as error:
        raise InputError(f"{option} {text}: {error}") from None
