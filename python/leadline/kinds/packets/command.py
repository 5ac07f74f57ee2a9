"""The command `leadline packets`: frames into an interface of this host, or over a pair of virtual ones that is made
for the measurement, in a network namespace that ends with the agent."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leadline.cli import single_args
from leadline.cli.output import check_folder, print_note
from leadline.errors import InputError
from leadline.kinds.packets.model import PacketsTest
from leadline.kinds.packets.workload import generator, receivers
from leadline.plan.options import test_values

if TYPE_CHECKING:
    from leadline.kinds.kind import Kind
    from leadline.kinds.packets.rfc2544 import SizeResult
    from leadline.trial.single import Single
    from leadline.trial.workloads import LoadWorkload, Receiver

_OWN, _FAR = "leadline0", "leadline1"
_OWN_ADDRESS, _FAR_ADDRESS, _FAR_MAC = "198.18.0.1", "198.18.0.2", "02:00:00:00:00:02"
"""Of the network that RFC 2544 has for tests."""
_MAX_MTU = 3000
"""A virtual interface takes frames of a program up to about 3,500 bytes."""


def measure(kind: Kind[PacketsTest], values: Mapping[str, Any]) -> int:
    """Read the options, measure, print, and return the exit code.

    Raises:
        InputError: something is wrong with the options.
    """
    assert kind.command is not None, "this is its command"
    test = single_args.parse(
        PacketsTest, {"name": kind.name, **test_values(kind.command.options, values)}, kind.command.flags
    )
    output = single_args.OutputOptions(
        test.device or "",
        values["json"],
        values["out"],
        values["target"] or [],
        interval_ms=single_args.interval(values),
        verbose=values["verbose"],
    )
    check_folder("--out", output.out)
    within: tuple[str, ...] = ()
    if test.device is None:
        test, within = _on_own_pair(test)
        line = "Measuring a pair of virtual interfaces of this machine: no DEV was given"
        if output.is_document:
            print_note(line)
        else:
            print(line, flush=True)
    elif test.dst is None and test.template is None and (test.pcap is None or test.rewrite_macs):
        raise InputError("--dst: the packets have no destination", hint="as in --dst 198.18.0.2")
    if test.protocol == "tcp-syn" and test.to is None:
        raise InputError(
            "--protocol tcp-syn: segments that open connections flood what answers them",
            hint="name the interface of this host where they arrive (--to), or use a plan with a lab",
        )
    if test.echo and test.to is None:
        raise InputError("--echo: nothing sends the packets back", hint="name where they arrive (--to)")
    if values["html"] is not None and not values["rfc2544"]:
        raise InputError("--html without --rfc2544: there is no page of one measurement", hint="--out has its report")
    if values["find_rate"]:
        return _find_rate(kind, test, within, values)
    if values["rfc2544"]:
        return _benchmark(kind, test, within, values)
    from leadline.cli import run_single

    load, counts = _ends(test)
    return run_single.run(test, load, output, receivers=counts, within=within)


def _ends(test: PacketsTest) -> tuple[LoadWorkload, list[Receiver]]:
    """The generator, and the receivers if there are any: frames of a capture have no numbers by which one knows
    them."""
    counts = receivers(test, None) if test.to is not None and test.pcap is None else []
    return generator(test, test.dst or _FAR_ADDRESS), counts


def _refuse_beside(option: str, test: PacketsTest, values: Mapping[str, Any]) -> None:
    """Check that nothing but the option chooses the rates, and that something counts. Raises InputError."""
    for other in ("rate", "number", "pcap", "interval"):
        if values[other] is not None:
            raise InputError(f"--{other} and {option} exclude each other", hint=f"{option} chooses the rates itself")
    if test.via == "pktgen":
        raise InputError(f"{option} and --via pktgen exclude each other", hint="it begins up to 0.1 s late")
    if test.to is None:
        raise InputError(f"{option}: nothing counts the packets", hint="name where they arrive (--to)")


def _benchmark(kind: Kind[PacketsTest], test: PacketsTest, within: Sequence[str], values: Mapping[str, Any]) -> int:
    """The tests of RFC 2544.

    Raises:
        InputError: an option has no meaning beside it.
        LeadlineError: a measurement failed.
    """
    from rich.table import Table

    from leadline.cli.output import check_writable, print_all, print_json, write_option_file
    from leadline.kinds.packets.rfc2544 import SIZES, Benchmark, document, rows
    from leadline.trial.interrupt import Interrupt

    _refuse_beside("--rfc2544", test, values)
    if values["out"] is not None:
        raise InputError("--out and --rfc2544 exclude each other", hint="leave one out")
    if values["html"] is not None:
        check_writable("--html", values["html"])
    interrupt = Interrupt(lambda: print_note("stopping; press Ctrl-C again to stop at once"), lambda: None)
    argv = ["leadline", *sys.argv[1:]]
    benchmark = Benchmark(kind, test, _measurement(within, argv), argv, interrupt, print_note)

    async def run() -> list[SizeResult]:
        with interrupt.signals_caught():
            return await benchmark.run(tuple(test.size) if values["size"] is not None else SIZES)

    found = asyncio.run(run())
    if values["html"] is not None:
        from leadline.kinds.packets.rfc2544_page import render

        what = f"{test.device} to {test.to}, {test.protocol}, {test.flows:,} flow{'s' if test.flows > 1 else ''}"
        write_option_file("--html", values["html"], render(found, what, test.duration_ms / 1000, test.line_bps))
        print_note(f"page: {values['html']}")
    if values["json"]:
        print_json(document(found, test.device or "", test.duration_ms))
    else:
        head, *lines = rows(found, test.line_bps)
        table = Table(box=None, pad_edge=False)
        for title in head:
            table.add_column(title, no_wrap=True)
        for line in lines:
            table.add_row(*line)
        print_all([table])
    return 130 if interrupt.asked.is_set() else 0


def _measurement(within: Sequence[str], argv: Sequence[str]) -> Callable[[PacketsTest], Single]:
    """Makes the measurement of a test at one rate."""
    from leadline.trial.single import Single

    def measurement(test: PacketsTest) -> Single:
        load, counts = _ends(test)
        return Single(test, load, argv, receivers=counts, within=within)

    return measurement


def _find_rate(kind: Kind[PacketsTest], test: PacketsTest, within: Sequence[str], values: Mapping[str, Any]) -> int:
    """Search for the highest rate that holds.

    Raises:
        InputError: an option has no meaning beside it, or a condition is wrong.
    """
    from leadline.analysis.capacity import Conditions
    from leadline.cli import run_search
    from leadline.kinds.datagram_search import DatagramSearchTarget

    _refuse_beside("--find-rate", test, values)
    argv = ["leadline", *sys.argv[1:]]
    conditions = Conditions.read_all(values["find_rate"], kind.name, kind.name)
    output = single_args.OutputOptions(
        test.device or "",
        values["json"],
        values["out"],
        values["target"] or [],
        find_rate=conditions.text,
        verbose=values["verbose"],
    )
    run_search.check(output, "--find-rate")
    target = DatagramSearchTarget(kind, test, _measurement(within, argv), conditions, argv)
    return run_search.finish(target, output)


def _on_own_pair(test: PacketsTest) -> tuple[PacketsTest, tuple[str, ...]]:
    """The test on a pair of virtual interfaces, and the command that makes it and runs the agent beside it."""
    for key, value in (("to", test.to), ("yes_i_mean", test.yes_i_mean)):
        if value is not None:
            raise InputError(f"--{key.replace('_', '-')} without a DEV", hint="name the interface to send into")
    if os.geteuid() != 0:
        raise InputError("raw packets need root", hint="run it with sudo")
    mtu = max(_MAX_MTU, max(test.frame_bytes) - 14)
    script = (
        f"ip link add {_OWN} mtu {mtu} type veth peer name {_FAR} mtu {mtu} address {_FAR_MAC} && "
        f"ip addr add {_OWN_ADDRESS}/24 dev {_OWN} && ip link set lo up && ip link set {_OWN} up && "
        f'ip link set {_FAR} up && exec "$@"'
    )
    # The kernel's own packets, as IPv6 sends them on a new link, are not the test's.
    quiet = "for f in all default; do echo 1 > /proc/sys/net/ipv6/conf/$f/disable_ipv6 2>/dev/null; done; "
    found = test.model_copy(
        update={
            "device": _OWN,
            "to": _FAR,
            "dst": test.dst or _FAR_ADDRESS,
            "dst_mac": test.dst_mac or _FAR_MAC,
        }
    )
    return found, ("unshare", "--net", "sh", "-c", quiet + script, "sh")
