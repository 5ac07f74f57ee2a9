"""`leadline tunnel`: VPN clients by the thousand. Its options are in `tunnel_options`, what they become in
`tunnel_given`; several fleets one after another are `fleets`' work, and the search for the rate that a server takes
`choke`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from leadline.cli import tunnel_options as t
from leadline.cli.grouped import Grouped
from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.cli.quick import Wanted
    from leadline.contract.models import TunnelWorkload
    from leadline.plan import TunnelTest

NAME = "tunnel"
CLASS = Grouped
EXAMPLE = """\
Example: leadline tunnel client.ovpn -n 1000 --ca-key ca.key

    leadline tunnel client.ovpn -n 1000 --rate 200/s --retries 5
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
    settled: t.Settled = 0,
    attempt_timeout: t.AttemptTimeout = "60s",
    retries: t.Retries = 0,
    duration: t.Duration = None,
    threads: t.Threads = 1,
    ca_key: t.CaKey = None,
    ca: t.Ca = None,
    name_prefix: t.Names = "client-",
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
    traffic_duration: t.TrafficDuration = "10s",
    reverse: t.Reverse = False,
    bidir: t.Bidirectional = False,
    target: t.Targets = None,
    json: t.Json = False,
    out: t.Out = None,
) -> int:
    """Connect many OpenVPN clients, all at once or at a rate, and see what each of them was given.

    The clients are protocol machines of one process: no TUN devices, no root. Each is `configured` once it has been
    given all that was expected and a packet came back through its tunnel; else it is `partial` or `failed`, by cause.
    """
    from leadline.cli import quick

    return quick.run(*measurement(context.params))


def measurement(given: Mapping[str, Any]) -> tuple[TunnelTest, TunnelWorkload, Wanted]:
    """What to measure, as whom and how it is to end, from the options by their names.

    Raises:
        InputError: the first thing that is wrong.
    """
    from leadline.cli import quick, tunnel_given
    from leadline.plan import TunnelTest

    if given["at_once"] and given["rate"] is not None:
        raise InputError("--at-once and --rate exclude each other", hint="give one of them")
    numbers = tunnel_given.numbers_of(given["number"])
    options = tunnel_given.options_of(given, numbers[0])
    test = quick.parse(TunnelTest, options, tunnel_given.OPTIONS)
    access = tunnel_given.access_of(given)
    from leadline.trial.tunnel_workload import tunnel_workload

    wanted = quick.Wanted(str(given["file"]), given["json"], given["out"], given["target"] or [])
    return test, tunnel_workload(test, access, numbers[0]), wanted
