"""The commands of one measurement against `leadline serve` on loopback: documents, counts, folders, exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest

from in_process import leadline
from waiting import free_port, on_one_cpu, until

pytestmark = [
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
    pytest.mark.takes(30),
]

LOOPBACK = {4: "127.0.0.1", 6: "::1"}
LATENCIES = {f"latency_{name}_us": "us" for name in ("min", "mean", "p50", "p90", "p99", "p999", "max")}
# The design's "Metric names": each is there, in this unit, in the document of each kind.
METRICS = {
    "tcp": {"throughput_bps": "bit/s", "retransmits": "count", "rtt_mean_us": "us"},
    "udp": {
        "throughput_bps": "bit/s",
        "packets_per_s": "1/s",
        **dict.fromkeys(("sent", "received", "lost", "duplicates", "reordered"), "count"),
        "lost_ratio": "ratio",
        "jitter_us": "us",
    },
    "rr": {"transactions": "count", "transactions_per_s": "1/s", **LATENCIES},
    "http": {"requests": "count", "requests_per_s": "1/s", "bytes_received": "bytes", **LATENCIES},
}
PRIMARY = {"tcp": "throughput_bps", "udp": "throughput_bps", "rr": "transactions_per_s", "http": "requests_per_s"}
# Such a load is measured even if a process stalls; one that ends by time may be over then.
NUMBER = ("-n", "300", "-d", "60s")
BYTES = ("-n", "100MB", "-d", "60s")
PATIENT = ("--timeout", "60s")
LENGTH = ("-d", "3s")
"""Of loads that end by time: longer than any process stalls."""
VERDICTS = {"valid", "generator-limited", "receiver-limited", "disturbed", "unstable", "incomplete", "undetermined"}


@pytest.fixture(scope="module")
def server() -> Iterator[cli.Server]:
    with on_one_cpu(), cli.serve() as running:
        yield running


def family(ip: int) -> str:
    """The loopback address, where this host has one of that family."""
    if ip == 6:
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind((LOOPBACK[6], 0))
        except OSError as error:
            pytest.skip(f"no IPv6 on loopback: {error.strerror}")
    return LOOPBACK[ip]


def arguments(server: cli.Server, kind: str, host: str = LOOPBACK[4]) -> list[str]:
    if kind == "http":
        return ["http", server.url("/x?size=100", f"[{host}]" if ":" in host else host)]
    return [kind, host, "--port", str(server.port)]


def document(*command: str) -> dict[str, Any]:
    with on_one_cpu():
        done = leadline(*command, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def values(found: dict[str, Any]) -> dict[str, float | None]:
    return {name: metric["value"] for name, metric in found["metrics"].items()}


def known(found: dict[str, Any], name: str) -> float:
    value = values(found)[name]
    assert value is not None, name
    return value


# --- Documents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ip", [4, pytest.param(6, marks=pytest.mark.full_matrix)])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("tcp", ()),
        ("tcp", ("-R", "-P", "2", *BYTES)),
        ("tcp", ("--bidir", "-t", "2", *BYTES)),
        # Each for about a second: no receiver stalls for all of it.
        ("udp", ("--rate", "3mbit", *NUMBER)),
        ("udp", ("--rate", "150kbit", "-R", "-l", "64", *NUMBER)),
        ("udp", ("--rate", "3mbit", "--bidir", "-P", "2", *NUMBER)),
        ("rr", (*NUMBER, *PATIENT)),
        ("rr", ("--udp", "-P", "3", "-l", "100", "--response", "200", *NUMBER, *PATIENT)),
        ("http", ("-c", "4", *NUMBER)),
        ("http", ("-c", "4", "-t", "2", "--rate", "1000", *NUMBER)),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value) or "plain",
)
@pytest.mark.decided_by("nothing: any verdict is one")
def test_each_command_gives_the_document_of_the_design(
    server: cli.Server, kind: str, options: tuple[str, ...], ip: int
) -> None:
    command = arguments(server, kind, family(ip))
    found = document(*command, f"-{ip}", *(options or LENGTH))
    assert (found["schema"], found["command"], found["target"]) == ("leadline.result/1", kind, command[1])
    for name, unit in METRICS[kind].items():
        metric = found["metrics"][name]
        assert metric["unit"] == unit, name
        if metric["low"] is None or metric["high"] is None:
            assert metric["unbounded"] or metric["value"] is None, name
        else:
            assert metric["low"] <= metric["value"] <= metric["high"], name
        assert metric["value"] is None or metric["value"] >= 0
    assert found["validity"]["verdict"] in VERDICTS
    said = (*found["validity"]["reasons"], *found["validity"]["notes"])
    assert all(set(reason) == {"code", "text", "verdict", "metrics"} for reason in said)
    cost = {"cpu_s", "wall_s", "busiest_thread", "late_p99_us", "cpu_ns_per_unit", "ceiling_per_s"}
    cost |= {"spun_s", "engine", "engine_reason"}
    cost |= {"ceiling_basis", "ceiling_extrapolated", "ceiling_iterations_per_s", "ceiling_users"}
    assert set(found["generator"]) == cost
    assert found["generator"]["cpu_s"] > 0
    assert found["errors"] == {}
    check_sums(kind, options, found)
    assert known(found, PRIMARY[kind]) > 0
    assert found["intervals"]
    for interval in found["intervals"]:
        assert 0 <= interval["start_s"] < interval["end_s"] and PRIMARY[kind] in interval["values"]


def check_sums(kind: str, options: tuple[str, ...], found: dict[str, Any]) -> None:
    """What the figures of one document owe each other."""
    match kind:
        case "tcp":
            assert known(found, "sent_bytes") == known(found, "received_bytes") > 0
            if "--bidir" in options:
                both = known(found, "throughput_up_bps") + known(found, "throughput_down_bps")
                assert known(found, "throughput_bps") == pytest.approx(both)
        case "udp":
            assert known(found, "received") + known(found, "lost") == known(found, "sent") > 0
            assert known(found, "lost_ratio") == known(found, "lost") / known(found, "sent")
            assert known(found, "duplicates") == known(found, "reordered") == 0
            payload = int(options[options.index("-l") + 1]) if "-l" in options else 1400
            assert known(found, "throughput_bps") == pytest.approx(known(found, "packets_per_s") * payload * 8)
        case _:
            ordered = [known(found, f"latency_{name}_us") for name in ("min", "p50", "p90", "p99", "p999", "max")]
            assert ordered == sorted(ordered)
            # Of the histogram's 0.1 % the mean may be outside.
            assert ordered[0] * 0.999 <= known(found, "latency_mean_us") <= ordered[-1] * 1.001


@pytest.mark.parametrize("options", [(), ("-R", "-l", "64"), ("--bidir", "-P", "2")], ids=" ".join)
def test_udp_rate_is_never_exceeded(server: cli.Server, options: tuple[str, ...]) -> None:
    """A rate of 20 Mbit/s in each direction is never exceeded by more than a datagram."""
    found = document(*arguments(server, "udp"), "--rate", "20mbit", "-d", "300ms", *options)
    assert known(found, "received") + known(found, "lost") == known(found, "sent")
    payload = int(options[options.index("-l") + 1]) if "-l" in options else 1400
    directions = 2 if "--bidir" in options else 1
    assert known(found, "sent") <= 20e6 * directions * 0.3 / 8 / payload + 2 * directions


@pytest.mark.parametrize(
    ("kind", "options", "counter"),
    [
        ("udp", ("-4", "--rate", "5mbit"), "sent"),
        ("udp", ("-6", "--rate", "5mbit", "-R"), "sent"),
        ("rr", ("-6", *PATIENT), "transactions"),
        ("rr", ("-4", "--udp", "-P", "4", *PATIENT), "transactions"),
        ("http", ("-4", "-c", "7", "-t", "2"), "requests"),
        ("http", ("-6", "-c", "7", "--rate", "2000"), "requests"),
    ],
)
def test_a_number_is_kept_exactly(server: cli.Server, kind: str, options: tuple[str, ...], counter: str) -> None:
    found = document(*arguments(server, kind, family(int(options[0][1]))), "-n", "321", "-d", "30s", *options)
    assert known(found, counter) == 321
    assert found["generator"]["wall_s"] < 25, "it ended by number, not by time"


# --- Folders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tcp", "udp", "rr", "http"])
def test_out_leaves_a_run_that_results_and_report_take(server: cli.Server, kind: str, tmp_path: Path) -> None:
    options = {"tcp": BYTES, "udp": ("--rate", "5mbit", *NUMBER), "rr": (*NUMBER, *PATIENT), "http": NUMBER}[kind]
    found = document(*arguments(server, kind), *options, "--out", str(tmp_path / "kept"))
    (folder,) = (tmp_path / "kept").iterdir()
    kept = cli.Run(folder, 0, "", "")
    assert kept.figures(kind) == values(found)
    (folder / "report.html").unlink()
    assert kept.report()["status"] == "done"
    page = (folder / "report.html").read_text()
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    for name in ("run.json", "journal.ndjson", "samples.parquet", "flows.parquet", "results.parquet"):
        assert (folder / name).stat().st_size > 0, name
    plain = leadline("results", folder)
    assert plain.returncode == 0 and PRIMARY[kind] in plain.stdout


def test_without_json_there_is_a_table_and_the_verdict(server: cli.Server) -> None:
    done = cli.call(*arguments(server, "rr"), "-n", "100", *PATIENT)
    assert done.returncode == 0, done.stderr
    assert "transactions" in done.stdout and "p99" in done.stdout


@pytest.mark.full_matrix  # In tests/unit/cli/test_single_commands.py each outcome has one.
@pytest.mark.decided_by("an exact count")
@pytest.mark.parametrize(("target", "outcome", "code"), [("== 300", "met", 0), ("< 300", "missed", 3)])
def test_targets_decide_the_code(server: cli.Server, target: str, outcome: str, code: int) -> None:
    done = leadline(*arguments(server, "rr"), *NUMBER, *PATIENT, "--json", "--target", f"transactions {target}")
    assert json.loads(done.stdout)["targets"][0]["outcome"] == outcome
    assert done.returncode == code


# --- What goes wrong --------------------------------------------------------------------------------------------------


def fails(code: int, *command: str) -> str:
    """The one line that a command fails with."""
    done = leadline(*command, "--json")
    assert done.returncode == code, (command, done.returncode, done.stderr)
    (line,) = done.stderr.splitlines()
    error_document = json.loads(done.stdout)
    assert error_document["schema"] == "leadline.error/1"
    assert line == f"leadline: {error_document['error']['message']}"
    return line


@pytest.mark.parametrize("kind", ["tcp", "udp", "rr", "http"])
def test_closed_port_fails_and_is_named(kind: str) -> None:
    absent = cli.Server(free_port(), free_port())
    line = fails(1, *arguments(absent, kind), "-d", "1s")
    port = absent.http_port if kind == "http" else absent.port
    assert "connection refused" in line and f"127.0.0.1:{port}" in line and "os error" not in line
    assert ("is `leadline serve` running there" in line) == (kind != "http")


@pytest.mark.parametrize(
    "command", [("tcp", "nosuch.invalid"), ("http", "http://nosuch.invalid/")], ids=["tcp", "http"]
)
def test_name_without_an_address_is_named(command: tuple[str, ...]) -> None:
    line = fails(1, *command, "-d", "1s")
    # Where no name server answers, it is not known whether the name has one.
    reason = "has no address|cannot be looked up: no name server answers"
    assert re.search(rf": the name nosuch\.invalid ({reason})$", line), line


def test_other_protocol_on_the_port_fails_and_is_named(server: cli.Server) -> None:
    mixed_up = cli.Server(server.http_port, server.port)
    assert str(server.http_port) in fails(1, *arguments(mixed_up, "tcp"), "-d", "1s")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("http", "ftp://127.0.0.1/"), "http://HOST"),
        (("http", "127.0.0.1:8080"), "http://HOST"),
        (("http", "http://[::1/"), "not a URL"),
        (("http", "http://127.0.0.1:99999/"), "not a URL"),
        (("http", "http://127.0.0.1/", "--rate", "-5"), "not a rate"),
        (("http", "http://127.0.0.1/", "-H", "no colon"), "Name: value"),
        (("udp", "127.0.0.1", "--rate", "12foo"), "20mbit"),
        (("udp", "127.0.0.1", "-l", "10"), "--size: 10 bytes is too small; at least 16"),
        (("tcp", "127.0.0.1", "-d", "0s"), "above 0"),
        (("tcp", "127.0.0.1", "-d", "soon"), "duration"),
        (("tcp", "127.0.0.1", "-4", "-6"), "exclude each other"),
        (("tcp", "127.0.0.1", "-R", "--bidir"), "exclude each other"),
        (("rr", "127.0.0.1", "-p", "99999"), "65535"),
        (("rr", "127.0.0.1", "-n", "0"), "1"),
        (("rr", "127.0.0.1", "-d", "1s", "--warmup", "2s"), "leadline: --warmup: 2000 ms of warm-up"),
        (("tcp", "127.0.0.1", "--target", "throughput_bps"), "METRIC < VALUE"),
        (("tcp", "127.0.0.1", "--nope"), "--nope"),
    ],
    ids=lambda value: " ".join(value[:1]) if isinstance(value, tuple) else value,
)
@pytest.mark.decided_by("nothing: no load runs")
def test_wrong_input_is_one_line_and_code_2(command: tuple[str, ...], says: str) -> None:
    assert says in fails(2, *command)


def test_an_address_of_the_other_family(server: cli.Server) -> None:
    assert "IPv6" in fails(2, *arguments(server, "tcp"), "-6", "-d", "1s")
    assert "IPv4" in fails(2, *arguments(server, "tcp", LOOPBACK[6]), "-4", "-d", "1s")


# --- Interrupted ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tcp", "udp", "rr", "http"])
@pytest.mark.decided_by("the interrupt")
def test_an_interrupt_prints_what_was_measured(server: cli.Server, kind: str, tmp_path: Path) -> None:
    options = {"udp": ("--rate", "5mbit"), "rr": PATIENT}.get(kind, ())
    command: list[str | Path] = [
        cli.quick_command,
        *arguments(server, kind),
        *options,
        "-d",
        "60s",
        "--json",
        "--out",
        str(tmp_path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not has_figures(tmp_path):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=cli.WITHIN_S)
    assert process.returncode == 130, err
    found = json.loads(out)
    assert known(found, PRIMARY[kind]) > 0
    assert found["validity"]["verdict"] == "incomplete"
    (folder,) = tmp_path.iterdir()
    kept = cli.Run(folder, 130, "", "")
    assert kept.figures(kind) == values(found)
    assert kept.report()["status"] == "interrupted"


def has_figures(base: Path) -> bool:
    """Whether the counters of three intervals have come since something had arrived."""
    lines = [line for path in base.glob("*/journal.ndjson") for line in path.read_bytes().split(b"\n")[:-1]]
    events = [json.loads(line).get("event") or {} for line in lines]
    flows = [event["flows"] for event in events if event.get("type") == "progress"]
    return sum(any(flow["received_bytes"] for flow in one) for one in flows) >= 3


@pytest.mark.parametrize("kind", ["tcp", "udp", "rr", "http"])
def test_an_agent_that_is_stopped_goes_on(server: cli.Server, kind: str) -> None:
    """Again and again, so at every moment of it: what it waits for is waited for again."""
    process = cli.start(*arguments(server, kind), *LENGTH, "--json")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    stops = 0
    while is_running_for(process, 0.02):
        stops += sum(stop_and_go_on(int(pid)) for pid in children.read_text().split())
    out, err = process.communicate()
    assert stops > 0 and process.returncode == 0, err
    assert known(json.loads(out), PRIMARY[kind]) > 0


def is_running_for(process: subprocess.Popen[str], seconds: float) -> bool:
    """Whether it has not ended within this time."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.returncode is None


def stop_and_go_on(pid: int) -> bool:
    """Whether a process stopped for a while; one that has ended does not."""
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state_of(pid) in "TZX")
        os.kill(pid, signal.SIGCONT)
        return True
    return False


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_serve_says_where_it_listens_and_ends_with_an_interrupt() -> None:
    port, http_port = free_port(), free_port()
    command: list[str | Path] = [cli.LEADLINE, "serve", "--port", str(port), "--http-port", str(http_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline() or process.communicate(timeout=cli.WITHIN_S)[1]
        assert str(port) in said and str(http_port) in said and "127.0.0.1" in said, said
        taken = cli.call("serve", "--port", str(port), "--http-port", str(free_port()))
        process.send_signal(signal.SIGINT)
        assert process.wait(cli.WITHIN_S) in (0, 130)
    assert taken.returncode in (1, 2) and str(port) in taken.stderr
