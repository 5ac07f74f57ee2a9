"""The command `leadline packets`: frames into an interface of this host, or over a pair of virtual ones that is made
for the measurement, in a network namespace that ends with the agent."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leadline.cli import single_args
from leadline.cli.output import check_folder, print_note
from leadline.errors import InputError
from leadline.kinds.packets.model import PacketsTest
from leadline.kinds.packets.workload import DRAIN_MS, generator, receiver
from leadline.plan.options import test_values

if TYPE_CHECKING:
    from leadline.kinds.kind import Kind
    from leadline.trial.workloads import LoadWorkload

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
    if values["find_rate"] is not None:
        return _find_rate(kind, test, within, values)
    from leadline.cli import run_single

    load, counts = _ends(test)
    return run_single.run(test, load, output, receiver=counts, drain_ms=DRAIN_MS, within=within)


def _ends(test: PacketsTest) -> tuple[LoadWorkload, LoadWorkload | None]:
    """The generator, and the receiver if there is one: frames of a capture have no numbers by which one knows them."""
    counts = receiver(test, None) if test.to is not None and test.pcap is None else None
    return generator(test, test.dst or _FAR_ADDRESS), counts


def _find_rate(kind: Kind[PacketsTest], test: PacketsTest, within: Sequence[str], values: Mapping[str, Any]) -> int:
    """Search for the highest rate that holds.

    Raises:
        InputError: an option has no meaning beside it, or a condition is wrong.
    """
    from leadline.analysis.capacity import Conditions
    from leadline.cli import run_search
    from leadline.kinds.datagram_search import DatagramSearchTarget
    from leadline.trial.single import Single

    for option in ("rate", "number", "pcap", "interval"):
        if values[option] is not None:
            raise InputError(f"--{option} and --find-rate exclude each other", hint="--find-rate searches for the rate")
    if test.to is None:
        raise InputError("--find-rate: nothing counts the packets", hint="name where they arrive (--to)")
    argv = ["leadline", *sys.argv[1:]]

    def measurement(test: PacketsTest) -> Single:
        load, counts = _ends(test)
        return Single(test, load, argv, receiver=counts, drain_ms=DRAIN_MS, within=within)

    conditions = Conditions.read(values["find_rate"], kind.name, kind.name)
    output = single_args.OutputOptions(
        test.device or "",
        values["json"],
        values["out"],
        values["target"] or [],
        find_rate=values["find_rate"],
        verbose=values["verbose"],
    )
    run_search.check(output, "--find-rate")
    target = DatagramSearchTarget(kind, test, measurement, conditions, argv)
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
