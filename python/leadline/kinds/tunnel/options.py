"""The options of `leadline tunnel`, in the groups of its `--help`: one row each, with the key of the test that it sets.

What the values mean and which exclude each other is said by the model; `args` has how values are written.
"""

from __future__ import annotations

from pathlib import Path

from leadline.plan.options import Command, Option

_ARRIVALS, _CLIENTS, _EXPECT, _AFTER, _TRAFFIC, _OUTPUT = (
    *("Arrivals", "Who the clients are", "What makes a client configured"),
    *("Once they are connected", "Traffic inside of the tunnels", "Output"),
)
CONDITION = "connect_p99_ms < 2000 and unconfigured_ratio < 1%"
"""What holds of a server that is not overloaded."""

OPTIONS = (
    Option((), "The clients' profile, an .ovpn file.", type=Path, required=True, parameter="file"),
    Option(
        ("-n", "--number"),
        "Clients. Several, as in 50,100,200,400, go one after another, and a scaling exponent is fitted.",
        default="1",
        metavar="N[,N...]",
        panel=_ARRIVALS,
    ),
    Option(
        ("--rate",),
        "Arrivals per second, or stages: 0:200/10s,200/60s. Else all at once.",
        key="rate",
        metavar="RATE",
        panel=_ARRIVALS,
    ),
    Option(("--at-once",), "All clients at one instant; the default.", type=bool, default=False, panel=_ARRIVALS),
    Option(
        ("--until-choke",),
        f"Find the highest rate of arrivals for which this holds: '{CONDITION}' unless given.",
        bare=CONDITION,
        metavar="['METRIC < VALUE']",
        panel=_ARRIVALS,
    ),
    Option(
        ("--settled",),
        "Connect N clients first; their pings show what the arrivals do to them.",
        key="settled",
        type=int,
        default=0,
        least=0,
        panel=_ARRIVALS,
    ),
    Option(
        ("--attempt-timeout",),
        "How long one attempt may take: 60s as the real client's, 10s with --until-choke.",
        key="attempt_timeout",
        metavar="TIME",
        panel=_ARRIVALS,
    ),
    Option(
        ("--retries",),
        "How often a client that failed tries again: after 1 s, then twice as long each time.",
        key="retries",
        type=int,
        default=0,
        least=0,
        most=1000,
        panel=_ARRIVALS,
    ),
    Option(
        ("-d", "--duration"),
        "How long the fleet stays at most, from the first arrival; unless given until everything is done, "
        "with pings until 10s after the last one is up or gave up. How long a trial of --until-choke lasts.",
        key="duration",
        metavar="TIME",
        panel=_ARRIVALS,
    ),
    Option(
        ("-t", "--threads"),
        "Threads of the fleet, 1 to 256.",
        key="threads",
        type=int,
        default=1,
        metavar="N",
        counts_threads=True,
        panel=_ARRIVALS,
    ),
    Option(
        ("--ca-key",),
        "The authority's key: each client gets a certificate of its own, made before the load.",
        type=Path,
        metavar="FILE",
        panel=_CLIENTS,
    ),
    Option(
        ("--ca",),
        "The authority's certificate for --ca-key; the profile's ca unless given.",
        type=Path,
        metavar="FILE",
        panel=_CLIENTS,
    ),
    Option(
        ("--name-prefix",),
        "Common names of these certificates: this ('client-' unless given) and the client's number.",
        metavar="TEXT",
        panel=_CLIENTS,
    ),
    Option(
        ("--identities",),
        "Folder with pairs NAME.crt and NAME.key, which the clients take in turn.",
        type=Path,
        metavar="DIR",
        panel=_CLIENTS,
    ),
    Option(
        ("--users",),
        "File with a user:password a line, which the clients take in turn.",
        type=Path,
        metavar="FILE",
        panel=_CLIENTS,
    ),
    Option(
        ("--bind",),
        "Local address, network (192.0.2.0/28) or range (FIRST-LAST); all of them take turns.",
        key="bind",
        type=list,
        metavar="ADDR",
        panel=_CLIENTS,
    ),
    Option(
        ("--expect-pool",),
        "Network that holds every given address.",
        key="expect.pools",
        type=list,
        metavar="CIDR",
        panel=_EXPECT,
    ),
    Option(
        ("--expect-route",), "Network pushed as a route.", key="expect.routes", type=list, metavar="CIDR", panel=_EXPECT
    ),
    Option(("--expect-dns",), "DNS server that is pushed.", key="expect.dns", type=list, metavar="ADDR", panel=_EXPECT),
    Option(
        ("--expect-option",),
        "Option pushed word for word.",
        key="expect.options",
        type=list,
        metavar="TEXT",
        panel=_EXPECT,
    ),
    Option(
        ("--echo",),
        "Who answers the proving ICMP echo request; the server's end of the tunnel unless given.",
        key="expect.echo",
        metavar="ADDR",
        panel=_EXPECT,
    ),
    Option(
        ("--first-data",),
        "How long a client waits for it.",
        key="first_data",
        default="5s",
        metavar="TIME",
        panel=_EXPECT,
    ),
    Option(
        ("--ping",),
        "Time between pings of each connected client, with --settled of each of those alone, 100ms there.",
        key="ping",
        metavar="TIME",
        panel=_AFTER,
    ),
    Option(
        ("--reconnect-at",),
        "All drop their connection silently and reconnect, this long after the first arrival, within OVER.",
        key="reconnect_at",
        type=list,
        metavar="TIME[/OVER]",
        panel=_AFTER,
    ),
    Option(
        ("--renegotiate-at",),
        "All negotiate new keys.",
        key="renegotiate_at",
        type=list,
        metavar="TIME[/OVER]",
        panel=_AFTER,
    ),
    Option(
        ("--traffic",),
        "Echo requests; datagrams or TCP streams with a `leadline serve`; HTTP requests.",
        type=("echo", "udp", "tcp", "http"),
        panel=_TRAFFIC,
    ),
    Option(
        ("--to",),
        "Address[:port] inside, for http also a URL (port 80, 8080 without one); for echo the server's end of the "
        "tunnel unless given.",
        metavar="ADDR",
        panel=_TRAFFIC,
    ),
    Option(
        ("--traffic-rate",),
        "Per client: packets or requests per second (50/s), or bits (2mbit); else as fast as it goes.",
        metavar="RATE",
        panel=_TRAFFIC,
    ),
    Option(
        ("-l", "--size"),
        "Bytes of UDP payload (1200), or of an echo request's IP packet (100).",
        metavar="SIZE",
        panel=_TRAFFIC,
    ),
    Option(("--traffic-duration",), "How long; 10s unless given.", metavar="TIME", panel=_TRAFFIC),
    Option(
        ("--key-file",),
        "File with the key that the `leadline serve` of --to asks for.",
        type=Path,
        metavar="FILE",
        panel=_TRAFFIC,
    ),
    Option(("-R", "--reverse"), "The server sends.", type=bool, default=False, panel=_TRAFFIC),
    Option(("--bidir",), "Both send at once.", type=bool, default=False, panel=_TRAFFIC),
    Option(
        ("--server-pid",),
        "The server's process on this host: what it costs is counted too.",
        type=int,
        metavar="PID",
        least=1,
        panel=_OUTPUT,
    ),
    Option(
        ("--target",),
        "Exit 3 unless it holds, as in 'connect_p99_ms < 2000'.",
        type=list,
        metavar="'METRIC < VALUE'",
        panel=_OUTPUT,
    ),
    Option(
        ("--json",), "One JSON document on stdout; progress stays on stderr.", type=bool, default=False, panel=_OUTPUT
    ),
    Option(("--out",), "Keep every sample in a new run folder in this one.", type=Path, metavar="DIR", panel=_OUTPUT),
)

COMMAND = Command(
    """\
Connect many OpenVPN clients, all at once or at a rate, and see what each of them was given.

The clients are protocol machines of one process: no TUN devices, no root. Each is `configured` once it has been
given all that was expected and a packet came back through its tunnel; else it is `partial` or `failed`, by cause.
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
""",
    position=5,
    options=OPTIONS,
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
