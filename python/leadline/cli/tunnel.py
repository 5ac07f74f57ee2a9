"""`leadline tunnel`: VPN clients by the thousand. Its options are in `tunnel_options`, what they become in
`tunnel_args`. `run_single` runs one fleet, `tunnel_sweep` several in turn, `run_search` finds the highest arrival rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from leadline.cli import tunnel_options as t
from leadline.cli.help_format import PanelHelpCommand
from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.cli.single_args import OutputOptions
    from leadline.contract.models import TunnelWorkload
    from leadline.plan import TunnelTest

NAME = "tunnel"

_CHOKE = "--until-choke"
_CHOKE_TIMEOUT = "10s"


class _Tunnel(PanelHelpCommand):
    """An option whose value may be left out, which the parser has no word for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the usual condition where none follows."""
        arguments = list(args)
        for place, argument in enumerate(args):
            following = args[place + 1] if place + 1 < len(args) else ""
            is_condition = not following.startswith("-") and any(sign in following for sign in "<>=")
            if argument == _CHOKE and not is_condition:
                arguments.insert(place + 1, t.CONDITION)
                break
        parsed: list[str] = super().parse_args(ctx, arguments)
        return parsed


CLASS = _Tunnel
EXAMPLE = """\
Example: leadline tunnel client.ovpn -n 1000 --ca-key ca.key

    leadline tunnel client.ovpn -n 1000 --rate 200/s --retries 5
    leadline tunnel client.ovpn -n 1000 --until-choke 'connect_p99_ms < 500'
    leadline tunnel client.ovpn -n 50,100,200,400,800 --server-pid "$(pidof -s openvpn)"
    leadline tunnel client.ovpn -n 500 --settled 50 --expect-route 10.20.0.0/16
    leadline tunnel client.ovpn -n 200 --renegotiate-at 10s --reconnect-at 20s/5s
    leadline tunnel client.ovpn -n 100 --traffic udp --to 10.8.0.1 --traffic-rate 2mbit
    leadline tunnel client.ovpn -n 50 --users users.txt --target 'connect_p99_ms < 2000'
"""


def command(
    context: typer.Context,
    file: t.File,
    number: t.Number = "1",
    rate: t.Rate = None,
    at_once: t.AtOnce = False,
    until_choke: t.UntilChoke = None,
    settled: t.Settled = 0,
    attempt_timeout: t.AttemptTimeout = None,
    retries: t.Retries = 0,
    duration: t.Duration = None,
    threads: t.Threads = 1,
    ca_key: t.CaKey = None,
    ca: t.Ca = None,
    name_prefix: t.Names = None,
    identities: t.Identities = None,
    users: t.Users = None,
    bind: t.Bind = None,
    expect_pool: t.Pools = None,
    expect_route: t.Routes = None,
    expect_dns: t.Dns = None,
    expect_option: t.Options = None,
    echo: t.Echo = None,
    first_data: t.FirstData = "5s",
    ping: t.Ping = None,
    reconnect_at: t.ReconnectAt = None,
    renegotiate_at: t.RenegotiateAt = None,
    traffic: t.Traffic = None,
    to: t.To = None,
    traffic_rate: t.TrafficRate = None,
    size: t.Size = None,
    traffic_duration: t.TrafficDuration = None,
    key_file: t.KeyFile = None,
    reverse: t.Reverse = False,
    bidir: t.Bidirectional = False,
    server_pid: t.ServerPid = None,
    target: t.Targets = None,
    json: t.Json = False,
    out: t.Out = None,
) -> int:
    """Connect many OpenVPN clients, all at once or at a rate, and see what each of them was given.

    The clients are protocol machines of one process: no TUN devices, no root. Each is `configured` once it has been
    given all that was expected and a packet came back through its tunnel; else it is `partial` or `failed`, by cause.
    """
    loads, output = parse_options(context.params)
    if len(loads) > 1:
        from leadline.cli import tunnel_sweep

        return tunnel_sweep.run(loads, output)
    test, load = loads[0]
    if output.find_rate is not None:
        from leadline.cli import run_search

        return run_search.search_arrival_rate(test, load, output.find_rate, output)
    from leadline.cli import run_single

    return run_single.run(test, load, output)


def parse_options(options: Mapping[str, Any]) -> tuple[list[tuple[TunnelTest, TunnelWorkload]], OutputOptions]:
    """What to measure, as whom and how it is to end, from the options by their names: a fleet for each number.

    Raises:
        InputError: the first thing that is wrong.
    """
    from leadline.cli import single_args, tunnel_args
    from leadline.plan import TunnelTest

    _check(options)
    choke = options["until_choke"]
    numbers = tunnel_args.client_counts(options["number"])
    if choke is not None and len(numbers) > 1:
        raise InputError("--until-choke has one number of clients", hint="the most that are connected at once")
    options = {**options, "attempt_timeout": options["attempt_timeout"] or (_CHOKE_TIMEOUT if choke else None)}
    tests = [
        single_args.parse(TunnelTest, tunnel_args.test_values(options, number), tunnel_args.OPTIONS)
        for number in numbers
    ]
    tunnel_args.check_addresses(tests[0].addresses)
    access = tunnel_args.read_access(options)
    from leadline.trial.tunnel_workload import tunnel_workload

    output = single_args.OutputOptions(
        str(options["file"]),
        options["json"],
        options["out"],
        options["target"] or [],
        find_rate=choke,
        server_pid=options["server_pid"],
    )
    loads = [(test, tunnel_workload(test, access, test.number or 1)) for test in tests]
    if options["key_file"] is not None:
        _show_key([load for _, load in loads], options["key_file"])
    return loads, output


def _show_key(loads: Sequence[TunnelWorkload], path: Path) -> None:
    """Have the load inside show the key of this file to its responder."""
    from leadline.cli.key_file import read_key
    from leadline.contract.models import TunnelTcp, TunnelUdp

    key = None
    for load in loads:
        if not isinstance(load.traffic, TunnelUdp | TunnelTcp):
            raise InputError(
                "--key-file is for --traffic udp and tcp", hint="a responder asks for its key in sessions alone"
            )
        load.traffic.key = key = key or read_key(path)


def _check(options: Mapping[str, Any]) -> None:
    """Who says when clients arrive."""
    values = {"--at-once": options["at_once"], "--rate": options["rate"], _CHOKE: options["until_choke"]}
    both = [option for option, value in values.items() if value]
    if len(both) > 1:
        raise InputError(f"{both[0]} and {both[1]} exclude each other", hint="give one of them")
