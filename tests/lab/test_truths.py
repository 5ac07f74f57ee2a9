"""Known truths: a plan or a command is run as a user would, against something whose right answer is known exactly.

Rates are the kernel's own limits (tbf), counts are to the packet and to the request. Where time is unavoidable, the
comparison is with what the other side wrote down, not with a clock of the test.
"""

from __future__ import annotations

import json
import math
import signal
import socket
import socketserver
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cli_runs as cli
import polars as pl
import pytest
from datagram_relay import Relay, Script

from in_process import leadline
from leadline.analysis.stability import CHANGE_POINT, INTERVALS_DISAGREE, PRECISION_UNKNOWN
from waiting import on_one_cpu, until

# Of an Ethernet frame of 1514 bytes: less Ethernet 14, IPv4 20 or IPv6 40, TCP 20, timestamps 12.
FRAME = 1514
WITHIN = 0.01
"""Of the goodput that the headers leave: by how much a measured one may be off."""
BUCKET_S = 0.01
"""How long a link of a lab that was idle sends faster than its rate."""
GOODPUT_SHARE = {4: (FRAME - 66) / FRAME, 6: (FRAME - 86) / FRAME}

pytestmark = pytest.mark.takes(35)
needs_lab = pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-")
needs_command = pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed")
needs_openvpn = pytest.mark.skipif(cli.OPENVPN is None, reason="openvpn is not installed")


# --- What the kernel limits and drops ---------------------------------------------------------------------------------


@needs_lab
@pytest.mark.lab
@pytest.mark.parametrize(
    ("rate_mbps", "duration_ms", "repeats"),
    [
        # The link's bucket holds 10 ms of its rate. A sender that stalls as the window begins leaves it full, and its
        # content comes on top of the rate: 0.4 % of 2.7 s.
        (100, 3000, 1),
        pytest.param(100, 3000, 3, marks=pytest.mark.full_matrix),
        # A bucket has room for two frames at least, and a queue for 16.
        pytest.param(10, 7000, 3, marks=pytest.mark.full_matrix),
        pytest.param(1000, 3000, 3, marks=pytest.mark.full_matrix),
    ],
)
@pytest.mark.exclusive
def test_a_limited_link_leaves_tcp_what_its_headers_leave(
    tmp_path: Path, rate_mbps: int, duration_ms: int, repeats: int
) -> None:
    tests = [
        f"{{name: {direction}{ip}, kind: tcp, direction: {direction}, ip: {ip}, duration: {duration_ms}ms, "
        "warmup: 300ms}"
        for direction in ("up", "down")
        for ip in (4, 6)
    ]
    plan = (
        f"{{name: tbf, lab: {{link: {{rate: {rate_mbps}mbit}}}}, sut: {{kind: route}}, repeat: {repeats}, "
        f"tests: [{', '.join(tests)}]}}"
    )
    run = cli.run(plan, tmp_path)
    assert run.code == 0, run.err
    results = [result for trial in run.report()["trials"] for result in trial["tests"]]
    for direction in ("up", "down"):
        for ip, share in GOODPUT_SHARE.items():
            all_of_it, test = rate_mbps * 1e6 * share, f"{direction}{ip}"
            # From its first byte on, no flow gets more than the link's rate and what its bucket holds.
            for length_s, received_bits in received_from_the_start(run, test):
                assert received_bits <= (1 + WITHIN / 2) * all_of_it * length_s + BUCKET_S * rate_mbps * 1e6, test
            # A receiver that stalls as the window begins finds what came before it in its socket: of the repeats whose
            # figure is valid, one may.
            found = [result["metrics"]["throughput_bps"] for result in results if result["test"] == test]
            valid = [figure["value"] for figure in found if figure["verdict"] == "valid"]
            if valid:
                assert statistics.median_low(valid) <= (1 + WITHIN) * all_of_it, (test, valid)
            # Who keeps the sender off its CPU for longer than the link's bucket lasts takes that time from the link for
            # good: on a machine that others use from many an interval, and not from all of them.
            each = interval_rates_bps(run, test)
            assert statistics.quantiles(each, n=4)[2] >= (1 - WITHIN) * all_of_it, (direction, ip, each)


def received_from_the_start(run: cli.Run, test: str) -> list[tuple[float, float]]:
    """Of each repeat, from the start of its flow to the last reading: seconds, and bits received."""
    starts_ns = dict(pl.read_parquet(run.folder / "flows.parquet").select("trial", "start_ns").iter_rows())
    last = received_readings(run, test).group_by("trial").agg(pl.col("t_ns").max(), pl.col("value").max())
    return [((t_ns - starts_ns[trial]) / 1e9, 8.0 * value) for trial, t_ns, value in last.iter_rows()]


def interval_rates_bps(run: cli.Run, test: str) -> list[float]:
    """What was delivered in each interval of a test, over all its repeats, less the first ones."""
    rates = []
    for _, one in received_readings(run, test).sort("t_ns").group_by("trial", "labels"):
        steps = one.select(pl.col("value").diff() * 8e9 / pl.col("t_ns").diff()).drop_nulls().to_series()
        rates += steps.to_list()[3:]
    return rates


def received_readings(run: cli.Run, test: str) -> pl.DataFrame:
    """The samples of the receiving side's counter, in all repeats of a test."""
    return run.samples.filter(
        (pl.col("metric") == "flow_received_bytes") & pl.col("trial").str.ends_with(f"/{test}") & (pl.col("value") > 0)
    )


@needs_lab
@pytest.mark.lab
def test_every_hundredth_datagram_dropped_is_one_percent_to_the_packet(tmp_path: Path) -> None:
    plan = """
        name: drops
        lab: {link: {drop_udp_every: 100}}
        sut: {kind: route}
        tests:
          - {name: up10000, kind: udp, number: 10000, rate: 4mbit, packet: 100, duration: 60s}
          - {name: up777, kind: udp, number: 777, rate: 4mbit, packet: 100, duration: 60s}
          - {name: down1000, kind: udp, direction: down, number: 1000, rate: 4mbit, packet: 100, duration: 60s}
          - {name: both1000, kind: udp, direction: both, number: 1000, rate: 4mbit, packet: 100, duration: 60s}
    """
    # Small enough that a socket's buffer holds all of them, even if a process stalls.
    with on_one_cpu():
        run = cli.run(plan, tmp_path)
    assert run.code == 0, run.err
    for name, sent in (("up10000", 10_000), ("down1000", 1000), ("both1000", 2000)):
        found = run.figures(name)
        assert (found["sent"], found["lost"], found["lost_ratio"]) == (sent, sent / 100, 0.01), name
        assert (found["received"], found["duplicates"], found["reordered"]) == (sent * 0.99, 0, 0), name
    # Whether the hundredth of a shorter train is hit depends on what the counter has seen before: 7 or 8 of 777.
    found = run.figures("up777")
    assert found["sent"] == 777 and found["lost"] in (7, 8) and found["received"] == 777 - found["lost"]


@needs_command
def test_lost_doubled_and_swapped_datagrams_are_each_counted_apart() -> None:
    # Of every ten: the fourth is dropped, the sixth doubled, the eighth and ninth change places.
    every_ten: dict[int, Callable[[int], tuple[int, ...]]] = {
        4: lambda number: (),
        6: lambda number: (number, number),
        8: lambda number: (),
        9: lambda number: (number, number - 1),
    }

    def script(number: int) -> tuple[int, ...]:
        return every_ten[number % 10](number) if number % 10 in every_ten else (number,)

    found = relayed(script)
    counted = {name: figure(found, name) for name in ("sent", "received", "lost", "duplicates", "reordered")}
    assert counted == {"sent": 400, "received": 360, "lost": 40, "duplicates": 40, "reordered": 40}
    assert [figure(found, f"loss_burst{name}") for name in ("s", "_mean", "_max")] == [40, 1, 1]
    assert [figure(found, f"reorder_extent_{name}") for name in ("mean", "max")] == [1, 1]


@needs_command
@pytest.mark.parametrize("size", ["100", "16", "86:1,146:2"], ids=["one", "short", "mix"])
def test_head_and_tail_of_a_flow_are_exact_to_the_datagram(size: str) -> None:
    lost = {1, 2, 3, 50, *range(100, 108), 398, 399, 400}
    # The first and the last that arrive come twice; one is late by six, two are late by two and three.
    special: dict[int, tuple[int, ...]] = {4: (4, 4), 397: (397, 397), 200: (), 206: (206, 200), 300: (), 301: ()}
    special |= {303: (303, 300, 301), **dict.fromkeys(lost, ())}
    found = relayed(lambda number: special.get(number, (number,)), size=size)
    counted = {name: figure(found, name) for name in ("sent", "received", "lost", "duplicates", "reordered")}
    assert counted == {"sent": 400, "received": 385, "lost": 15, "duplicates": 2, "reordered": 3}
    assert [figure(found, f"loss_burst{name}") for name in ("s", "_mean", "_max")] == [4, 15 / 4, 8]
    assert [figure(found, f"reorder_extent_{name}") for name in ("mean", "max")] == [(6 + 2 + 3) / 3, 6]
    # Both ends have one clock, and the relay takes its time.
    assert figure(found, "one_way_delay_bound_us") == 0
    delays = [figure(found, f"one_way_delay_{name}_us") or 0 for name in ("min", "mean", "max")]
    assert 0 < delays[0] <= delays[1] <= delays[2]


def relayed(script: Script, size: str = "100") -> dict[str, Any]:
    """A flow of 400 datagrams, of which a relay passes on what the script says."""
    with on_one_cpu(), cli.serve() as server, Relay(("127.0.0.1", server.port), script).running() as relay:
        # Few and small enough that the smallest socket buffer holds all of them, even if a process stalls.
        way = ("-p", str(relay.port), "-n", "400", "-d", "60s", "-l", size, "--rate", "200kbit")
        found = measure("udp", "127.0.0.1", *way)
    assert relay.passed == 400
    return found


# --- What both sides count --------------------------------------------------------------------------------------------


def measure(*arguments: str) -> dict[str, Any]:
    """A quick command's document."""
    done = leadline(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def figure(document: dict[str, Any], name: str) -> float | None:
    value: float | None = document["metrics"][name]["value"]
    return value


@pytest.fixture(scope="module")
def server() -> Iterator[cli.Server]:
    with cli.serve() as running:
        yield running


def assert_both_count_the_same(server: cli.Server, document: dict[str, Any], before: dict[str, int]) -> dict[str, int]:
    """The server's counters, once it has read what was under way at the load's end."""
    sent, answered, unanswered = (figure(document, name) for name in ("requests_sent", "requests", "unanswered"))
    assert sent is not None and answered is not None and unanswered is not None
    after = server.stats_once(lambda stats: stats["requests"] >= before["requests"] + sent)
    assert after["requests"] - before["requests"] == sent > 0
    assert answered + unanswered + sum(document["errors"].values()) == sent
    return after


@needs_command
@pytest.mark.parametrize("discipline", [(), ("--rate", "2000")], ids=["closed", "open"])
@pytest.mark.parametrize(
    "end",
    [
        ("-n", "1500", "-d", "30s"),
        ("-d", "1500ms"),
    ],
    ids=["number", "time"],
)
def test_client_and_server_count_the_same_requests(
    server: cli.Server, discipline: tuple[str, ...], end: tuple[str, ...]
) -> None:
    before = server.stats()
    found = measure("http", server.url("/x?size=1000"), "-c", "8", "-t", "2", *discipline, *end)
    after = assert_both_count_the_same(server, found, before)
    if "-n" in end:
        assert figure(found, "requests") == 1500
        # What the server sent besides is its answer to the first question for its counters, whose length it tells by
        # another one: the counters have as many digits.
        assert figure(found, "bytes_received") == 1500 * answer_bytes(server, "/x?size=1000")
    assert after["malformed"] == before["malformed"]


def answer_bytes(server: cli.Server, path: str) -> int:
    """How long one answer is, head included."""
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=cli.WITHIN_S) as plain:
        plain.sendall(f"GET {path} HTTP/1.1\r\nHost: {server.url()[7:-1]}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while part := plain.recv(65536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    kept_alive = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return len(b"\r\n".join(kept_alive)) + 4 + len(body)


@needs_command
@pytest.mark.parametrize("discipline", [(), ("--rate", "2000")], ids=["closed", "open"])
@pytest.mark.decided_by("the interrupt")
def test_client_and_server_count_the_same_requests_of_an_interrupted_load(
    server: cli.Server, discipline: tuple[str, ...]
) -> None:
    before = server.stats()
    options = ("-c", "8", "-d", "60s", "--json", "--no-calibrate", *discipline)
    command: list[str | Path] = [cli.quick_command, "http", server.url(), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: process.poll() is not None or server.stats()["requests"] >= before["requests"] + 500)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=cli.WITHIN_S)
    assert process.returncode == 130, err
    found = json.loads(out)
    assert_both_count_the_same(server, found, before)
    assert (figure(found, "requests_sent") or 0) >= 500
    assert found["validity"]["verdict"] == "incomplete"


STALL_S = 0.5
STALL_AFTER = 200
RATE_PER_S = 400


class Stalling(socketserver.StreamRequestHandler):
    """Answers requests at once, but one, which every client waits for; writes down when each came and was answered."""

    def handle(self) -> None:
        owner = self.server
        assert isinstance(owner, StallingServer)
        while self.rfile.readline():
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            came = time.monotonic()
            with owner.lock:
                if len(owner.served) == STALL_AFTER:
                    owner.released.wait(owner.stall_s)
                owner.served.append((came, time.monotonic()))
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")
        with owner.lock:
            owner.hung_up.append(time.monotonic())


class StallingServer(socketserver.ThreadingTCPServer):
    """A thread for each connection, one stall for all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Stalling)
        self.lock = threading.Lock()
        self.stall_s = STALL_S
        self.released = threading.Event()
        self.served: list[tuple[float, float]] = []
        self.hung_up: list[float] = []
        """When each connection was seen to have ended."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


@pytest.fixture
def stalling() -> Iterator[StallingServer]:
    with StallingServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.released.set()
        server.shutdown()


@needs_command
@pytest.mark.parametrize("connections", ["1", "4"])
@pytest.mark.decided_by("the server's stall")
def test_a_stall_of_the_server_shows_in_full_where_requests_have_due_times(
    stalling: StallingServer, connections: str
) -> None:
    """At 400/s a stall of half a second holds up the 200 requests that fall due in it, evenly, for 0 to 0.5 s."""
    way = ("-c", connections, "-t", "1", "--rate", str(RATE_PER_S), "-n", "1000", "-d", "60s")
    found = measure("http", stalling.url, *way)
    assert figure(found, "requests") == len(stalling.served) == 1000
    until(lambda: len(stalling.hung_up) == figure(found, "connections_opened"))
    latency = {name: figure(found, f"latency_{name}_us") or 0 for name in ("mean", "p90", "max")}
    # No machine makes it shorter than this: 200 of 1000 wait for 250 ms on average, 100 of them for more than that.
    assert latency["max"] >= STALL_S * 1e6 * 0.999
    assert latency["p90"] >= STALL_S / 2 * 1e6 * 0.98
    assert latency["mean"] >= STALL_S**2 / 2 * RATE_PER_S / 1000 * 1e6 * 0.98
    least, most, late = from_schedule(stalling, int(connections))
    assert 0.97 * statistics.mean(least) <= latency["mean"] / 1e6 <= 1.03 * statistics.mean(most)
    # The wait for a connection is the server's: what the generator itself was late by has nothing of it.
    assert (figure(found, "late_p99_us") or 0) / 1e6 < late[989] + STALL_S / 10
    assert "connections-busy" in [note["code"] for note in found["validity"]["notes"]]
    if connections == "1":
        assert 0.97 * least[-1] <= latency["max"] / 1e6 <= 1.03 * most[-1]
        assert 0.97 * least[899] <= latency["p90"] / 1e6 <= 1.03 * most[899]


def from_schedule(server: StallingServer, connections: int) -> tuple[list[float], list[float], list[float]]:
    """Latencies by the server's own notes, at least and at most, and how late the load itself was at most.

    No request came before it was due, and the promptest one tells when that was. The load reads an answer after that
    was given, and before it has sent the next but one that falls due then. A request that finds all connections taken
    waits for an answer to one of those before it.
    """
    came, answered = (sorted(times) for times in zip(*server.served, strict=True))
    began = min(at - number / RATE_PER_S for number, at in enumerate(came))
    least, most, late = [], [], []
    for number, (came_at, answered_at) in enumerate(zip(came, answered, strict=True)):
        due = began + number / RATE_PER_S
        later = math.ceil((answered_at - began) * RATE_PER_S) + 1
        least.append(answered_at - due)
        most.append((came[later] if later < len(came) else max(server.hung_up)) - due)
        late.append(came_at - max([due, *answered[max(number - connections, 0) : number - connections + 1]]))
    return sorted(least), sorted(most), sorted(late)


@needs_command
def test_a_closed_loop_hardly_shows_the_stall(stalling: StallingServer) -> None:
    """It sends nothing while it waits: one request of a thousand met the stall. The longest one shows that much."""
    found = measure("http", stalling.url, "-c", "1", "-n", "1000", "-d", "20s")
    longest, p90 = figure(found, "latency_max_us"), figure(found, "latency_p90_us")
    assert longest is not None and longest >= STALL_S * 1e6 * 0.999
    assert p90 is not None and p90 < STALL_S / 2 * 1e6


@needs_command
@pytest.mark.parametrize("discipline", [(), ("--rate", "1000")], ids=["closed", "open"])
@pytest.mark.machine_rules
def test_a_stall_that_lasts_to_the_end_is_in_the_rate_and_in_the_latency(
    stalling: StallingServer, discipline: tuple[str, ...]
) -> None:
    """Two hundred answers in four seconds, however soon they came; how long the next would take is unknown."""
    stalling.stall_s = 60.0
    found = measure("http", stalling.url, "-c", "2", "-d", "4s", "--timeout", "60s", *discipline)
    assert figure(found, "requests") == STALL_AFTER
    # From when both connections carry something to the end.
    length_s, rate = found["window"]["length_s"], figure(found, "requests_per_s")
    assert length_s > 1.5 and rate is not None and 0 < rate <= 1.01 * STALL_AFTER / length_s
    assert figure(found, "unanswered") == 2
    # At 1000/s the first 200 took a fifth of a second or the longer that the server needed.
    longest = figure(found, "latency_max_us")
    assert longest is not None and longest > 1e6
    codes = [note["code"] for note in found["validity"]["notes"]]
    reasons = {reason["code"] for reason in found["validity"]["reasons"]}
    # A busy machine may add that the generator was short of time, which is a worse verdict.
    assert reasons & {INTERVALS_DISAGREE, CHANGE_POINT, PRECISION_UNKNOWN} and "unanswered" in codes
    assert found["validity"]["verdict"] != "valid"
    assert ("connections-busy" in codes) == bool(discipline)


# --- Who used the CPU, and what was watched ---------------------------------------------------------------------------


@needs_lab
@pytest.mark.lab
def test_the_cpu_of_the_processes_is_that_of_their_cgroup(tmp_path: Path) -> None:
    """The gateway's cgroup holds its agent and the WireGuard process, and nothing else."""
    plan = """
        name: cpu
        observe: {period: 50ms}
        sut: {kind: wireguard}
        tests: [{name: load, kind: tcp, direction: both, flows: 2, duration: 5s}]
    """
    run = cli.run(plan, tmp_path)
    assert run.code == 0, run.err
    of_gateway = run.samples.filter((pl.col("host") == "gateway") & (pl.col("trial") == "c01/1/load"))
    cgroup = of_gateway.filter(pl.col("metric") == "cgroup_usage_s").sort("t_ns")
    if cgroup.is_empty():
        pytest.skip("this user may not have cgroups with CPU accounts")
    processes = of_gateway.filter(pl.col("metric").is_in(["process_user_s", "process_system_s"]))
    assert set(processes["process"].unique()) == {"agent", "wireguard-gateway"}
    together = processes.group_by("t_ns").agg(pl.col("value").sum()).sort("t_ns")
    assert list(together["t_ns"]) == list(cgroup["t_ns"]), "each sample has both"
    # One account is read after the other: who is kept from its CPU in between has them of two moments. That befalls
    # some samples and not most.
    apart, third = together["value"] - cgroup["value"], len(cgroup) // 3
    drift = middle(apart.tail(third)) - middle(apart.head(third))
    used = middle(cgroup["value"].tail(third)) - middle(cgroup["value"].head(third))
    assert used > 0.2, "a load worth the name"
    # Two processes' two accounts come in hundredths of a second.
    assert drift == pytest.approx(0, abs=0.03 * used + 0.04)
    check_watching(run, period_ns=50_000_000)


def middle(values: pl.Series) -> float:
    """The median of numbers."""
    median: float = statistics.median(values.to_list())
    return median


def check_watching(run: cli.Run, period_ns: int) -> None:
    """Every host was watched in every phase, at the period asked for, at a small, reported cost."""
    watched = run.samples.filter(pl.col("metric") == "observer_cpu_s")
    for host in ("client1", "gateway", "server"):
        for phase in ("bring-up", "load"):
            of_phase = watched.filter((pl.col("host") == host) & (pl.col("trial") == f"c01/1/{phase}"))
            assert not of_phase.is_empty(), f"nothing of {host} in {phase}"
        times = watched.filter((pl.col("host") == host) & (pl.col("trial") == "c01/1/load")).sort("t_ns")["t_ns"]
        # A sample may be late by a period before the next ones are put off: of thirty in a row that is little. The load
        # is long enough for thirty samples before or after a moment without any.
        assert min(times.diff(30).drop_nulls().to_list()) / 30 == pytest.approx(period_ns, rel=0.05), host
    # An agent with little to take down may be gone before it has looked once more.
    assert not watched.filter(pl.col("trial") == "c01/1/tear-down").is_empty()
    costs = run.report()["observer_cpu_share"]
    assert set(costs) == {"client1", "gateway", "server"}
    # A look takes an eighth of a millisecond of CPU, or a quarter; one that scanned everything would take many, however
    # slow the CPU.
    assert all(0 < cost * period_ns < 2.5e6 for cost in costs.values()), costs
    assert any("observing cost at most" in note["text"] for note in run.report()["notes"])


# --- Clients that are not all there -----------------------------------------------------------------------------------


@needs_lab
@needs_openvpn
@pytest.mark.lab
@pytest.mark.decided_by("the size of the pool")
def test_clients_without_an_address_are_partial_and_the_result_is_incomplete(tmp_path: Path) -> None:
    plan = """
        name: partial
        clients: 5
        sut: {kind: openvpn, pool_size: 3}
        tests: [{name: udp, kind: udp, rate: 200kbit, packet: 200, number: 40, duration: 60s}]
    """
    run = cli.run(plan, tmp_path)
    assert run.code == 0, run.err
    assert run.verdict("udp") == "incomplete"
    document = run.report()
    assert document["validity"]["verdict"] == "incomplete"
    (trial,) = document["trials"]
    assert {name: trial["bring_up"][name] for name in ("connected", "partial", "failed")} == {
        "connected": 3,
        "partial": 2,
        "failed": 0,
    }
    bring_up = run.out.partition("Bring-up of clients")[2].splitlines()
    row = next(line.split() for line in bring_up if line.startswith("c01 "))
    assert "3" in row and "2" in row and "0" in row, row
    assert "pool is used up" in run.out
    assert "incomplete" in run.out
    # This small number fits into any buffer on the path, even if a process stalls.
    found = run.figures("udp")
    assert (found["sent"], found["received"], found["lost"]) == (120, 120, 0)
