"""`leadline serve` with its options for http, real, on loopback; and what it refuses."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import HTTPError

import pytest
import started_command

from in_process import leadline
from waiting import WITHIN_S, free_port


@contextmanager
def serving(*options: str) -> Iterator[dict[str, str]]:
    """A responder on free ports; gives its URLs by their schemes."""
    argv = [started_command.program, "serve", "--http", "--bind", "127.0.0.1", *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        ports = re.findall(r"(https?)[^;]* on port (\d+)", said)
        assert ports, process.communicate(timeout=WITHIN_S)
        try:
            yield {scheme: f"{scheme}://127.0.0.1:{port}" for scheme, port in ports}
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=WITHIN_S)


@pytest.fixture
def ports() -> tuple[str, str]:
    """Two free ports."""
    return str(free_port()), str(free_port())


@pytest.mark.agent
def test_options_set_the_response_and_queries_override_it(ports: tuple[str, str]) -> None:
    options = ["--status", "503", "--size", "1KiB", "--chunked", "--delay", "2ms", "--shape", "uniform"]
    with serving("--http-port", ports[0], "--threads", "1", "--close-after", "2", *options) as urls:
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(urls["http"] + "/", timeout=WITHIN_S)
        with refused.value as answer:
            assert (answer.code, len(answer.read())) == (503, 1024)
            assert answer.headers["Transfer-Encoding"] == "chunked"
        with urllib.request.urlopen(
            urls["http"] + "/?status=201&size=7&chunked=0&delay=0", timeout=WITHIN_S
        ) as changed:
            assert (changed.status, changed.headers["Content-Length"]) == (201, "7")
        with urllib.request.urlopen(urls["http"] + "/_leadline/stats", timeout=WITHIN_S) as response:
            stats = json.load(response)
    assert stats["by_status"] == {"201": 1, "503": 1}
    assert (stats["requests"], stats["delayed"], stats["threads"]) == (2, 1, 1)


@pytest.mark.agent
def test_a_share_of_errors_is_exact(ports: tuple[str, str]) -> None:
    with serving("--http-port", ports[0], "--errors", "0.3") as urls:
        codes = []
        for _ in range(10):
            try:
                with urllib.request.urlopen(urls["http"] + "/", timeout=WITHIN_S) as answer:
                    codes.append(answer.status)
            except HTTPError as error:
                codes.append(error.code)
                error.close()
    assert (codes.count(200), codes.count(500)) == (7, 3)


@pytest.mark.agent
def test_max_rate_holds_for_http_alone(ports: tuple[str, str]) -> None:
    size, rate_bps = 1_000_000, 40_000_000
    with serving("--http-port", ports[0], "--max-rate", "40mbit") as urls:
        began = time.monotonic()
        with urllib.request.urlopen(urls["http"] + f"/?size={size}", timeout=WITHIN_S) as answer:
            assert len(answer.read()) == size
        took = time.monotonic() - began
    # A tenth of a second of the rate may be sent at once; a busy machine only takes longer.
    assert took >= size * 8 / rate_bps - 0.1


@pytest.mark.agent
def test_self_signed_tls_answers_requests(ports: tuple[str, str]) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with serving("--http-port", ports[0], "--https-port", ports[1]) as urls:
        with urllib.request.urlopen(urls["https"] + "/?size=100000", timeout=WITHIN_S, context=context) as answer:
            assert len(answer.read()) == 100_000
        with urllib.request.urlopen(urls["http"] + "/_leadline/stats", timeout=WITHIN_S) as response:
            assert json.load(response)["handshakes_full"] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--delay", "5x"], "--delay: '5x' is not a duration; write 10s, 500ms or 1m"),
        (["--delay", "2h"], "--delay: 2h is too long; at most 1h"),
        (["--size", "2GiB"], "--size: 2GiB is too large; at most 1GiB"),
        (["--stall", "1s"], "--stall: '1s' is not a length and an interval; write 1s/5s"),
        (["--stall", "5s/5s"], "--stall: '5s/5s' is a stall that is not shorter than its interval; write 1s/5s"),
        (["--stall", "1us/5s"], "--stall: '1us/5s' is not in whole milliseconds; write 100ms/5s"),
        (
            ["--key", "key.pem"],
            "--certificate and --key require each other; give both, or neither to have a certificate made",
        ),
        (["--certificate", "a", "--key", "b"], "--certificate without --https-port; give --https-port 8443"),
        (["--http", "-p", "9000"], "--port and --key-file are for tcp, udp and rr; leave out --http"),
        (["--no-http", "--http-port", "9000"], "--http-port is for HTTP; leave out --no-http"),
        (["--errors", "2"], "--errors"),
        (["--status", "100"], "--status"),
        (["--shape", "bell"], "--shape"),
    ],
)
def test_impossible_options_are_refused_in_one_line(options: list[str], said: str) -> None:
    ended = leadline("serve", *options)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert said in ended.stderr


@pytest.mark.agent
@pytest.mark.parametrize("option", ["--port", "--http-port"])
def test_a_taken_port_names_the_option_that_gives_another(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        ports = {"--port": free_port(), "--http-port": free_port(), option: holder.getsockname()[1]}
        argv = [
            started_command.program,
            "serve",
            "--bind",
            "127.0.0.1",
            *(f"{name}={port}" for name, port in ports.items()),
        ]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert ended.returncode != 0
    assert ended.stderr.endswith(f"; give another port with {option}\n"), ended.stderr
