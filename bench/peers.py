"""How each program is run for a comparison, pinned: servers to CPU 0, generators to CPU 1. Each returns one figure."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SERVER_CPU, GENERATOR_CPU = 0, 1
SECONDS = 3
_BIN = Path(sys.executable).parent
os.environ["PATH"] = f"{_BIN}:{os.environ['PATH']}"


class PeerMissing(Exception):
    """A program that a row needs is not installed."""


@contextmanager
def leadline_server() -> Iterator[int]:
    """Our server; gives its port."""
    port, http_port = _free_port(), _free_port()
    argv = ["leadline-agent", "serve", "--bind", "127.0.0.1", "--port", str(port), "--http-port", str(http_port)]
    with _server(argv, port):
        yield port


@contextmanager
def iperf3_server() -> Iterator[int]:
    """iperf3's server; gives its port."""
    port = _free_port()
    with _server([_program("iperf3"), "-s", "-p", str(port), "-B", "127.0.0.1"], port):
        yield port


@contextmanager
def nginx() -> Iterator[str]:
    """One worker that answers 200 with a body of 12 bytes; gives its URL."""
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "nginx.conf"
        config.write_text(
            f"daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/log;\n"
            "events { worker_connections 4096; }\n"
            "http { access_log off; keepalive_requests 100000000; client_body_temp_path /tmp;\n"
            f"server {{ listen 127.0.0.1:{port}; location / {{ return 200 'hello world\\n'; }} }} }}\n"
        )
        with _server([_program("nginx"), "-c", str(config)], port):
            yield f"http://127.0.0.1:{port}/"


def leadline_tcp(port: int) -> float:
    """Gbit/s."""
    result = _leadline("tcp", "127.0.0.1", "--port", str(port), "-d", f"{SECONDS}s")
    return _metric(result, "throughput_bps") / 1e9


def iperf3_tcp(port: int) -> float:
    """Gbit/s."""
    return float(_iperf3(port)["end"]["sum_received"]["bits_per_second"]) / 1e9


def leadline_udp(port: int) -> float:
    """Thousands of datagrams received per second."""
    result = _leadline("udp", "127.0.0.1", "--port", str(port), "-l", "1400", "-d", f"{SECONDS}s")
    return _metric(result, "packets_per_s") / 1e3


def iperf3_udp(port: int) -> float:
    """Thousands of datagrams received per second."""
    end = _iperf3(port, "-u", "-b", "0", "-l", "1400")["end"]["sum"]
    return (end["packets"] - end["lost_packets"]) / end["seconds"] / 1e3


def leadline_http(url: str) -> float:
    """µs of generator's CPU, user and system, per request."""
    result = _leadline("http", url, "-c", "50", "-d", f"{SECONDS}s")
    return float(result["generator"]["cpu_s"]) * 1e6 / _metric(result, "requests")


def wrk(url: str) -> float:
    """µs of wrk's CPU per request."""
    said, cpu_s = _timed([_program("wrk"), "-t1", "-c50", f"-d{SECONDS}s", url])
    return cpu_s * 1e6 / int(_found(r"(\d+) requests in", said))


def ab(url: str) -> float:
    """µs of ab's CPU per request."""
    said, cpu_s = _timed([_program("ab"), "-k", "-c50", "-t", str(SECONDS), "-n", "100000000", url])
    return cpu_s * 1e6 / int(_found(r"Complete requests:\s+(\d+)", said))


def observer_share() -> float:
    """CPU time that the agent's observer takes at 10 Hz, as a share of one core, from its own account."""
    command = subprocess.Popen(
        _pinned(GENERATOR_CPU, ["leadline-agent"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert command.stdin is not None
    assert command.stdout is not None
    with command:
        command.stdin.write('{"type":"observe","trial":"bench","period_ms":100,"machine":true}\n')
        command.stdin.flush()
        samples = []
        for line in command.stdout:
            event = json.loads(line)
            if event["type"] == "observation":
                samples.append(event)
            if len(samples) == 31:
                break
        command.stdin.close()
    wall_s = (samples[-1]["t_ns"] - samples[0]["t_ns"]) / 1e9
    return float(samples[-1]["observer_cpu_s"] - samples[0]["observer_cpu_s"]) / wall_s


def shaped_goodput_share() -> float:
    """TCP goodput through a lab link of 100 Mbit/s, over what Ethernet, IP and TCP headers leave of the rate."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.yaml"
        plan.write_text(
            "name: shaped\ntopology: remote-access\nlab: {link: {rate: 100mbit}}\nsut: {kind: route}\n"
            "tests:\n  - {name: tcp, kind: tcp, duration: 5s, warmup: 1s}\n"
        )
        argv = ["leadline", "run", str(plan), "--json", "--out", folder]
        document = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    goodput_bps = document["summaries"][0]["metrics"]["throughput_bps"]["value"]
    return float(goodput_bps) / (100e6 * 1448 / 1514)


def _leadline(*arguments: str) -> dict[str, object]:
    argv = ["leadline", *arguments, "--json"]
    done = subprocess.run(_pinned(GENERATOR_CPU, argv), capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def _iperf3(port: int, *more: str) -> dict[str, dict[str, dict[str, float]]]:
    argv = [_program("iperf3"), "-c", "127.0.0.1", "-p", str(port), "-t", str(SECONDS), "-J", *more]
    done = subprocess.run(_pinned(GENERATOR_CPU, argv), capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def _metric(result: dict[str, object], name: str) -> float:
    metrics = result["metrics"]
    assert isinstance(metrics, dict)
    return float(metrics[name]["value"])


def _timed(argv: Sequence[str]) -> tuple[str, float]:
    """What a program says, and the CPU time that it took, user and system."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(_pinned(GENERATOR_CPU, argv), stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read()
    if process.returncode != 0:
        raise RuntimeError(f"{argv[0]} exited with {process.returncode}: {said}")
    return said, usage.ru_utime + usage.ru_stime


@contextmanager
def _server(argv: Sequence[str], port: int) -> Iterator[None]:
    server = subprocess.Popen(_pinned(SERVER_CPU, argv), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise
        yield
    finally:
        server.terminate()
        server.wait()


def _pinned(cpu: int, argv: Sequence[str]) -> list[str]:
    available = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", str(available[cpu % len(available)]), *argv]


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise PeerMissing(f"{name} is not installed")
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise RuntimeError(f"{pattern!r} is not in: {text}")
    return match[1]
