"""The options of `leadline tunnel`, one row each, in the groups of its `--help`, with the key of the test that they
set.

The model decides what the values mean and which exclude each other; `args` has the syntax of the values.
"""

from __future__ import annotations

from pathlib import Path

from leadline.kinds.tunnel.model import TunnelLoad, TunnelTest
from leadline.plan import options as o
from leadline.plan.option_fields import option_field
from leadline.plan.options import Command, Option, group

CONDITION = "connect_p99_ms < 2000 and unconfigured_ratio < 1%"
"""The default conditions: they hold for a server that is not overloaded."""

_ATTEMPT_TIMEOUT = option_field(TunnelTest, "attempt_timeout").default
_LOAD_DURATION = option_field(TunnelLoad, "duration").default

_ROWS = (
    Option(
        (),
        "The clients' file: OpenVPN's profile (.ovpn), WireGuard's file (wg-quick), strongSwan's swanctl.conf for "
        "IKEv2, or a folder with a WireGuard file (NAME.conf) for each client.",
        type=Path,
        required=True,
        parameter="file",
    ),
    *group(
        "Arrivals",
        Option(
            ("-n", "--number"),
            "Number of clients. A list, as in 50,100,200,400, runs one fleet after another and fits a scaling "
            "exponent. Default: 1, or one for each WireGuard file.",
            metavar="N[,N...]",
        ),
        Option(
            ("--rate",),
            "Arrivals per second, or stages: 0:200/10s,200/60s. Default: all at once.",
            key="rate",
            metavar="RATE",
        ),
        Option(("--at-once",), "Connect all clients at once. This is the default.", type=bool, default=False),
        Option(
            ("--until-choke",),
            f"Find the highest arrival rate at which this holds. Default: '{CONDITION}'.",
            bare=CONDITION,
            metavar="['METRIC < VALUE']",
        ),
        Option(("--settled",), "Connect N clients first and use their pings as the baseline.", key="settled"),
        Option(
            ("--attempt-timeout",),
            f"Time limit of one attempt to connect. Default: {_ATTEMPT_TIMEOUT}, as the real client; 10s with "
            "--until-choke.",
            key="attempt_timeout",
            default=None,
        ),
        Option(
            ("--retries",),
            "Number of retries of a failed client: after 1 s, then twice as long each time.",
            key="retries",
        ),
        Option(
            ("-d", "--duration"),
            "Maximum stay of the fleet, from the first arrival. Default: until everything is done, with pings until "
            "10s after the last client connected or gave up. With --until-choke: length of a trial.",
            key="duration",
            default=None,
        ),
        Option(
            ("-t", "--threads"),
            f"Number of threads, 1 to {option_field(TunnelTest, 'threads').most}.",
            key="threads",
            metavar="N",
            counts_threads=True,
        ),
    ),
    *group(
        "Client identities",
        Option(
            ("--ca-key",),
            "Private key of the CA. Each client gets its own certificate, made before the load.",
            type=Path,
            metavar="FILE",
        ),
        Option(
            ("--ca",),
            "Certificate of the CA of --ca-key. Default: the profile's ca.",
            type=Path,
            metavar="FILE",
        ),
        Option(
            ("--name-prefix",),
            "Prefix of the certificates' common names, before the client's number. Default: 'client-'.",
            metavar="TEXT",
        ),
        Option(
            ("--identities",),
            "Folder with pairs NAME.crt and NAME.key, which the clients use in turn.",
            type=Path,
            metavar="DIR",
        ),
        Option(
            ("--users",),
            "File with one user:password per line, which the clients use in turn.",
            type=Path,
            metavar="FILE",
        ),
        Option(
            ("--peers",),
            "WireGuard: make this many clients from the file. The first has the file's key and Address; the others "
            "have keys made from it, the same ones in each run, and the next addresses.",
            type=int,
            metavar="N",
            least=1,
        ),
        Option(
            ("--write-peers",),
            "WireGuard: write the clients as [Peer] sections to this file, for `wg addconf` on the gateway, and end.",
            type=Path,
            metavar="FILE",
        ),
        Option(
            ("--connection",),
            "IKEv2: the connection of the swanctl.conf. Default: the only one.",
            metavar="NAME",
        ),
        Option(
            ("--bind", "--source"),
            "Local address, network (10.0.0.0/20) or range (FIRST-LAST); the clients' sockets use the addresses in "
            "turn, because gateways count clients by address.",
            key="bind",
            metavar="ADDR",
        ),
    ),
    *group(
        "Expected configuration",
        Option(
            ("--expect-pool",),
            "Network that must contain the address of each client.",
            key="expect.pools",
            metavar="CIDR",
        ),
        Option(
            ("--expect-route",),
            "Network that the server must push as a route.",
            key="expect.routes",
            metavar="CIDR",
        ),
        Option(
            ("--expect-dns",),
            "DNS server that the server must push.",
            key="expect.dns",
            metavar="ADDR",
        ),
        Option(
            ("--expect-option",),
            "Option that the server must push, as exactly this text.",
            key="expect.options",
            metavar="TEXT",
        ),
        Option(
            ("--echo",),
            "Destination of the ICMP echo request that verifies a tunnel. Default: the server's end of the tunnel.",
            key="expect.echo",
            metavar="ADDR",
        ),
        Option(("--first-data",), "Time that a client waits for the answer to that echo request.", key="first_data"),
    ),
    *group(
        "After connecting",
        Option(
            ("--ping",),
            "Time between two pings of each connected client; with --settled only of the settled ones, default 100ms.",
            key="ping",
        ),
        Option(
            ("--reconnect-at",),
            "All clients drop their connection silently and reconnect, TIME after the first arrival, spread over OVER.",
            key="reconnect_at",
            metavar="TIME[/OVER]",
        ),
        Option(
            ("--renegotiate-at",),
            "All clients negotiate new keys, TIME after the first arrival, spread over OVER.",
            key="renegotiate_at",
            metavar="TIME[/OVER]",
        ),
    ),
    *group(
        "Traffic in the tunnels",
        Option(
            ("--traffic",),
            "Load of each client: ICMP echo requests; datagrams or a TCP stream with a `leadline serve`; HTTP "
            "requests.",
            type=option_field(TunnelLoad, "kind").type,
        ),
        Option(
            ("--to",),
            "Destination in the tunnels, ADDRESS[:PORT]; for http also a URL (port 80; 8080 without a URL). Default "
            "for echo: the server's end of the tunnel.",
            metavar="ADDR",
        ),
        Option(
            ("--traffic-rate",),
            "Rate per client: packets or requests per second (50/s), or bits per second (2mbit). Default: as fast as "
            "possible.",
            metavar="RATE",
        ),
        Option(
            ("-l", "--size"),
            "Bytes of UDP payload (default: 1200), or of an echo request's IP packet (default: 100).",
            metavar="SIZE",
        ),
        Option(("--traffic-duration",), f"Length of the load. Default: {_LOAD_DURATION}.", metavar="TIME"),
        Option(
            ("--key-file",),
            "File with the key of the `leadline serve` at --to, if it requires one.",
            type=Path,
            metavar="FILE",
        ),
        Option(("-R", "--reverse"), "The server sends, the clients receive.", type=bool, default=False),
        Option(("--bidir",), "Both sides send at the same time.", type=bool, default=False),
    ),
    *group(
        "Output",
        Option(
            ("--server-pid",),
            "Process of the server on this host; its CPU time and memory are measured too.",
            type=int,
            metavar="PID",
            least=1,
        ),
        Option(
            ("--target",),
            "Exit with code 3 if this does not hold, as in 'connect_p99_ms < 2000'.",
            type=list,
            metavar="'METRIC < VALUE'",
        ),
        o.JSON,
        o.VERBOSE,
        o.OUT,
    ),
)

COMMAND = Command(
    TunnelTest,
    """\
Connect many VPN clients, and check what each received.

OpenVPN, WireGuard and IKEv2 clients connect all at once or at a rate.

The clients are protocol machines in one process, without TUN devices and without root. A client is `configured` once
it has received everything expected and the answer to a packet through its tunnel. Other clients are `partial` or
`failed`, with a cause.
""",
    """\
Example: leadline tunnel client.ovpn -n 1000 --ca-key ca.key

    leadline tunnel client.ovpn -n 1000 --rate 200/s --retries 5
    leadline tunnel client.ovpn -n 1000 --until-choke 'connect_p99_ms < 500'
    leadline tunnel client.ovpn -n 50,100,200,400,800 --server-pid "$(pidof -s openvpn)"
    leadline tunnel client.ovpn -n 500 --settled 50 --expect-route 10.20.0.0/16
    leadline tunnel client.ovpn -n 200 --renegotiate-at 10s --reconnect-at 20s/5s
    leadline tunnel client.ovpn -n 100 --traffic udp --to 10.8.0.1 --traffic-rate 2mbit
    leadline tunnel client.ovpn -n 50 --users users.txt --target 'connect_p99_ms < 2000'
    leadline tunnel wg0.conf --peers 1000 --write-peers peers.conf
    leadline tunnel wg0.conf --peers 1000 --source 127.0.0.0/20
""",
    position=5,
    rows=_ROWS,
    names={
        "rate_per_s": "rate",
        "number": "number",
        "traffic": "traffic",
        "traffic.to": "to",
        "traffic.port": "to",
        "traffic.path": "to",
        "traffic.rate": "traffic-rate",
        "traffic.packet": "size",
        "traffic.direction": "reverse",
        "traffic.duration": "traffic-duration",
    },
)
