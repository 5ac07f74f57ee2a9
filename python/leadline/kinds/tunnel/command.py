"""Runs `leadline tunnel`: one fleet, several fleets in turn, or a search for the highest arrival rate."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.cli import single_args
from leadline.cli.output import check_folder
from leadline.errors import InputError
from leadline.kinds.tunnel import args, wireguard_access
from leadline.kinds.tunnel.model import TunnelTest
from leadline.kinds.tunnel.options import COMMAND
from leadline.plan.options import test_values

if TYPE_CHECKING:
    from leadline.cli.single_args import OutputOptions
    from leadline.contract.models import TunnelWorkload

_CHOKE = "--until-choke"
_CHOKE_TIMEOUT = "10s"


def run(options: Mapping[str, Any]) -> int:
    """Run the measurement that the options describe (by their names in code), print it, and return the exit code."""
    if options["write_peers"] is not None:
        return _write_peers(options)
    loads, output = parse_options(options)
    check_folder("--out", output.out)
    if len(loads) > 1:
        from leadline.kinds.tunnel import sweep

        return sweep.run(loads, output)
    test, load = loads[0]
    if output.find_rate is not None:
        return _search(test, load, output.find_rate, output)
    from leadline.cli import run_single

    return run_single.run(test, load, output)


def _write_peers(options: Mapping[str, Any]) -> int:
    """Write the gateway's list of WireGuard clients, and say how to load it."""
    if not wireguard_access.has_wireguard(options["file"]):
        wireguard_access.check_other(options)
    count, file = wireguard_access.write_peers(options), options["write_peers"]
    print(f"{count:,} clients written to {file}. Load them on the gateway: wg addconf INTERFACE {file}")
    return 0


def _search(test: TunnelTest, load: TunnelWorkload, conditions: str, output: OutputOptions) -> int:
    """Search for the highest arrival rate of VPN clients."""
    from leadline.analysis.capacity import Conditions
    from leadline.cli import run_search
    from leadline.kinds.tunnel.search import FleetSearchTarget

    run_search.check(output, _CHOKE)
    read = Conditions.read(conditions, test.name, test.kind, _CHOKE)
    target = FleetSearchTarget(test, load, read, ["leadline", *sys.argv[1:]], output.server_pid)
    return run_search.finish(target, output)


def parse_options(options: Mapping[str, Any]) -> tuple[list[tuple[TunnelTest, TunnelWorkload]], OutputOptions]:
    """The tests (one fleet per number of clients), their loads and the output, from the options by their names in
    code.

    Raises:

        InputError: the first mistake.
    """
    _check(options)
    choke = options["until_choke"]
    asked = args.client_counts(options["number"]) if options["number"] else None
    access = args.read_access(options)
    numbers = asked if asked is not None else [access.clients]
    wireguard_access.check_count(access, max(numbers), options["file"])
    if choke is not None and len(numbers) > 1:
        raise InputError("--until-choke needs a single number of clients", hint="give the maximum per trial")
    options = {**options, "attempt_timeout": options["attempt_timeout"] or (_CHOKE_TIMEOUT if choke else None)}
    tests = [single_args.parse(TunnelTest, _test_values(options, number), COMMAND.flags) for number in numbers]
    args.check_addresses(tests[0].addresses)
    from leadline.kinds.tunnel.workload import tunnel_workload

    output = single_args.OutputOptions(
        str(options["file"]),
        options["json"],
        options["out"],
        options["target"] or [],
        find_rate=choke,
        server_pid=options["server_pid"],
        verbose=options["verbose"],
    )
    loads = [(test, tunnel_workload(test, access, test.number or 1)) for test in tests]
    if options["key_file"] is not None:
        _show_key([load for _, load in loads], options["key_file"])
    return loads, output


def _show_key(loads: Sequence[TunnelWorkload], path: Path) -> None:
    """Add the key in this file to the traffic's control sessions."""
    from leadline.cli.key_file import read_key
    from leadline.contract.models import TunnelTcp, TunnelUdp

    key = None
    for load in loads:
        if not isinstance(load.traffic, TunnelUdp | TunnelTcp):
            raise InputError(
                "--key-file is for --traffic udp and tcp", hint="a responder checks its key only in control sessions"
            )
        load.traffic.key = key = key or read_key(path)


def _check(options: Mapping[str, Any]) -> None:
    """Check the options about arrivals."""
    values = {"--at-once": options["at_once"], "--rate": options["rate"], _CHOKE: options["until_choke"]}
    both = [option for option, value in values.items() if value]
    if len(both) > 1:
        raise InputError(f"{both[0]} and {both[1]} exclude each other", hint="give one of them")


def _test_values(options: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The test's keys and values. Raises InputError for a value that cannot be read."""
    return {
        "name": "tunnel",
        "number": number,
        "traffic": args.traffic(options),
        **test_values(COMMAND.options, options),
    }
