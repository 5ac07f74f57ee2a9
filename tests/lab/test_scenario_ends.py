"""How scenarios end: by Ctrl-C in the middle, by their grace and ramp-down. How their requests end: by the time limits
of connecting and of answers, and by certificates that are not believed."""

from __future__ import annotations

import json
import signal
import socket
import socketserver
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import cli_runs as cli
import pytest
from http_servers import certificates, counting, front_nginx, openssl_server

from in_process import leadline
from waiting import until

pytestmark = [
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
    pytest.mark.agent,
    pytest.mark.takes(20),
]

GROUP = ("completed", "failed", "interrupted", "dropped", "not_begun")


def written(folder: Path, text: str) -> Path:
    """A scenario's file."""
    file = folder / "scenario.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def check_states(found: dict[str, Any]) -> None:
    """Each iteration that was due is in one state."""
    for group in found["scenario"]["groups"]:
        assert group["due"] == sum(group[name] for name in GROUP), group


def test_ctrl_c_ends_iterations_in_order_and_keeps_what_was_counted(tmp_path: Path) -> None:
    """Iterations in progress come to their end, none begins, and the group of afterwards still runs."""
    file = written(
        tmp_path,
        """
        base: http://127.0.0.1:${param('port')}
        groups:
          - name: visitors
            load: {users: 4, duration: 10m}
            flow: [{transaction: visit, steps: [{get: /ok/20, name: first}, {get: /ok/20, name: second}]}]
          - {name: after, phase: teardown, flow: [{get: /failed, name: bye}]}
        """,
    )
    jtl = tmp_path / "rows.jtl"
    with counting(tmp_path) as server:
        options = ("-J", f"port={server.port}", "--json", "--jtl", str(jtl))
        with cli.start("scenario", file, *options) as process:
            until(lambda: process.poll() is not None or (jtl.exists() and jtl.read_text().count("\n") > 1))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=cli.WITHIN_S)
            assert process.returncode == 130, err
    found = json.loads(out)
    visitors, after = found["scenario"]["groups"]
    check_states(found)
    assert (visitors["interrupted"], visitors["failed"]) == (0, 0)
    assert visitors["completed"] > 0 and after["failed"] == 1
    labels = {one["name"]: one["ended"] for one in found["scenario"]["labels"]}
    assert labels["visit"] == labels["first"] == labels["second"] == visitors["completed"]
    assert server.account.requests == {"ok": 2 * visitors["completed"], "failed": 1}


def test_iterations_end_within_grace_and_users_within_their_ramp_down(tmp_path: Path) -> None:
    """Of users that hang, the ramp removes some, which have its grace, and the end the others."""
    file = written(
        tmp_path,
        """
        base: http://127.0.0.1:${param('port')}
        groups:
          - name: ramp
            load:
              executor: ramping-vus
              startVUs: 3
              stages: [{target: 1, duration: 1500ms}, {target: 1, duration: 1500ms}]
              gracefulRampDown: 100ms
              gracefulStop: 200ms
            flow: [{get: /hang, name: hangs}]
          - name: quick
            load: {users: 2, duration: 3s, grace: 30s}
            flow: [{get: /ok/10, name: ends}, {wait: 50ms}, {get: /ok/10, name: ends}]
          - name: scheduled
            load: {schedule: [{users: 2, delay: 0s, ramp: 0s, hold: 3s, ramp_down: 0s}]}
            flow: [{get: /ok/10, name: held}]
        """,
    )
    with counting(tmp_path) as server:
        done = leadline("scenario", file, "-J", f"port={server.port}", "--json")
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    check_states(found)
    ramp, quick, _ = found["scenario"]["groups"]
    assert (ramp["due"], ramp["interrupted"]) == (3, 3)
    assert quick["interrupted"] == 0 and quick["completed"] > 0
    labels = {one["name"]: one for one in found["scenario"]["labels"]}
    assert labels["ends"]["ended"] == 2 * quick["completed"]
    ended = {name: one["ended"] + one["interrupted"] for name, one in labels.items()}
    assert server.account.requests == {"hang": 3, "ok": ended["ends"] + ended["held"]}


@contextmanager
def full_listener() -> Iterator[int]:
    """A port whose queue of connections is full: further ones have no answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        waiting = []
        for _ in range(3):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(address)
            waiting.append(one)
        try:
            yield address[1]
        finally:
            for one in waiting:
                one.close()


def test_each_time_limit_has_its_name(tmp_path: Path) -> None:
    """Those of connecting, of TLS and of the answer; a request's own limit precedes the test's. The user goes on."""
    file = written(
        tmp_path,
        """
        load: {users: 2, iterations: 2}
        flow:
          - {get: "http://127.0.0.1:${param('full')}/", name: full}
          - {get: "https://127.0.0.1:${param('port')}/", name: mute}
          - {get: "http://127.0.0.1:${param('port')}/hang", name: hangs, timeout: 400ms}
          - {get: "http://127.0.0.1:${param('port')}/hang", name: hangs too}
          - {get: "http://127.0.0.1:${param('port')}/ok", name: answers, timeout: 1m}
        """,
    )
    with counting(tmp_path) as server, full_listener() as full:
        limits = ("--connect-timeout", "100ms", "--timeout", "150ms")
        done = leadline("scenario", file, "-J", f"port={server.port}", "-J", f"full={full}", *limits, "--json")
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    check_states(found)
    labels = {one["name"]: one for one in found["scenario"]["labels"]}
    causes = {
        "full": "connect_timeout",
        "mute": "tls_timeout",
        "hangs": "response_timeout",
        "hangs too": "response_timeout",
    }
    assert {name: one["errors"] for name, one in labels.items()} == {
        **{name: {cause: 4} for name, cause in causes.items()},
        "answers": {},
    }
    assert [labels[name]["latency_censored"] for name in causes] == [4] * 4
    # Each waited for its limit at least, and the longer one is not the test's. A percentile is the middle of a
    # histogram's bucket, which is less than a thousandth below a value at its end.
    assert labels["hangs"]["latency_p50_us"] >= 0.999 * 400_000
    assert labels["hangs too"]["latency_p50_us"] >= 0.999 * 150_000
    assert server.account.requests == {"hang": 8, "ok": 4}


def test_certificates_are_believed_only_from_known_authorities(tmp_path: Path) -> None:
    """Without `verify: false` requests fail by the certificate; with it, later connections resume sessions."""
    text = """
        base: https://localhost:${param('port')}
        http: {verify: %s}
        groups:
          - name: all
            load: {users: 1, iterations: 4}
            new_connections: true
            flow: [{get: /ok, name: asked}]
        """
    made = certificates(tmp_path)
    ways: dict[str, tuple[str, ...]] = {
        "true": (),
        "false": (),
        "true --insecure": ("--insecure",),
        "true --ca": ("--ca", str(made.authority)),
        "false --ca": ("--ca", str(made.self_signed)),
    }
    handshakes, asked, codes, errors = {}, {}, {}, {}
    with counting(tmp_path) as server, front_nginx(tmp_path, server.port, made) as front:
        for way, options in ways.items():
            file = written(tmp_path, text % way.partition(" ")[0])
            done = leadline("scenario", file, "-J", f"port={front.tls}", "--json", *options)
            codes[way], errors[way] = done.returncode, done.stderr
            found = json.loads(done.stdout)
            [asked[way]] = found["scenario"]["labels"]
            handshakes[way] = [found["metrics"][f"handshakes_{kind}"]["value"] or 0 for kind in ("full", "resumed")]
    for way in ways:
        # The scenario that checks nothing is checked against a CA that is given.
        refused = way in ("true", "false --ca")
        assert codes[way] == (1 if refused else 0), errors[way]
        assert handshakes[way] == ([0, 0] if refused else [1, 3])
        assert (asked[way]["ended"], asked[way]["failed"]) == (4, 4 if refused else 0)
        assert asked[way]["errors"] == ({"tls_certificate_unknown_issuer": 4} if refused else {})
        assert ("--ca FILE" in errors[way]) == refused
    assert server.account.requests == {"ok": 12}


def test_client_certificate_opens_a_server_that_wants_one(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    file = written(tmp_path, "get: https://localhost:${param('port')}/\nload: {users: 1, iterations: 3}\n")
    identity = ("--cert", str(made.client), "--key", str(made.client_key))
    with openssl_server(tmp_path, made, "-Verify", "1", "-CAfile", str(made.authority)) as port:
        way = ("scenario", file, "-J", f"port={port}", "--ca", str(made.authority), "--json")
        without, with_it = leadline(*way), leadline(*way, *identity)
    assert (without.returncode, with_it.returncode) == (1, 0), (without.stderr, with_it.stderr)
    assert "--cert FILE and --key FILE" in without.stderr
    [label] = json.loads(with_it.stdout)["scenario"]["labels"]
    assert (label["ended"], label["failed"]) == (3, 0)


def test_load_that_nothing_answers_has_failed(tmp_path: Path) -> None:
    """As in `leadline http`; answers that fail are answers."""
    file = written(
        tmp_path, "get: http://127.0.0.1:${param('port')}/${param('way')}\nload: {users: 2, iterations: 2}\n"
    )
    with counting(tmp_path) as server:
        ran = {
            way: leadline("scenario", file, "-J", f"port={server.port}", "-J", f"way={way}", "--json")
            for way in ("reset", "failed")
        }
        beside = {way: leadline("http", server.url(way), "-n", "4", "--json", "--no-calibrate") for way in ran}
    refused = leadline("scenario", file, "-J", "port=1", "-J", "way=x", "--json")
    assert {way: done.returncode for way, done in ran.items()} == {"reset": 1, "failed": 0}
    assert {way: done.returncode for way, done in beside.items()} == {"reset": 1, "failed": 0}
    assert "none of 4 requests or transactions was answered (4 x reset)" in ran["reset"].stderr
    assert refused.returncode == 1
    assert "none of 4 requests or transactions was answered (4 x connection_refused)" in refused.stderr
    # What was measured is kept.
    for done in (refused, ran["reset"]):
        [label] = json.loads(done.stdout)["scenario"]["labels"]
        assert label["failed"] == 4


@contextmanager
def answering(respond: Callable[[str], bytes]) -> Iterator[int]:
    """A server on a port of its own that answers each request by its path."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline():
                while self.rfile.readline() not in (b"\r\n", b""):
                    pass
                self.wfile.write(respond(line.split()[1].decode()))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


def status_of_path(path: str) -> bytes:
    return f"HTTP/1.1 {path.strip('/')} X\r\nContent-Length: 2\r\n\r\nok".encode()


def test_a_request_that_fails_counts_once(tmp_path: Path) -> None:
    """One whose check or extraction fails was answered too, and statuses that no standard has refuse."""
    text = "base: http://127.0.0.1:${param('port')}\nload: {users: 1, iterations: 10}\n"
    steps = "{get: /200, check: [{contains: nope}]}, {get: /200, extract: {a: {regex: 'z(.)', required: true}}}"
    with answering(status_of_path) as port:
        given = ("-J", f"port={port}", "--json")
        all_fail = written(tmp_path, f"{text}flow: [{steps}]\nthresholds: {{http_req_failed: rate<0.5}}\n")
        missed = leadline("scenario", all_fail, *given)
        half_fail = written(tmp_path, f"{text}flow: [{steps}, {{get: /200}}, {{get: /999, ok: '999'}}]\n")
        half = leadline("scenario", half_fail, *given)
        refused = leadline("scenario", written(tmp_path, f"{text}flow: [{{get: /999}}, {{get: /600}}]\n"), *given)
        beside = leadline("http", f"http://127.0.0.1:{port}/999", "-n", "20", "--json", "--no-calibrate")
    figures = [json.loads(done.stdout)["metrics"] for done in (missed, half, refused, beside)]
    found = [tuple(one[name]["value"] for name in ("requests", "error_ratio")) for one in figures]
    assert found == [(20, 1.0), (40, 0.5), (20, 1.0), (20, 1.0)]
    assert missed.returncode == 3


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("flow: [{get: \"http://a.test/${int('x')}\"}]\nload: {users: 1, iterations: 2}", "2 x not_a_number"),
        ("flow: [{if: '1 == 2', then: [{get: 'http://127.0.0.1/'}]}]\nload: {users: 1, iterations: 2}",
         "no step of the flow that was reached is a request"),
        ("flow: [{get: 'http://127.0.0.1/'}]\nload: {threads: 0, loops: 1}", "no iteration began"),
    ],
)  # fmt: skip
def test_load_that_sends_nothing_has_failed_and_says_why(tmp_path: Path, text: str, cause: str) -> None:
    done = leadline("scenario", written(tmp_path, f"unset_variables: fail\n{text}\n"), "--json")
    assert (done.returncode, done.stderr.splitlines()[0].startswith(f"leadline: no request was sent: {cause}")) == (
        1,
        True,
    )


def test_secret_parameters_stand_in_no_file_and_no_output(tmp_path: Path) -> None:
    """The server gets the value; the command line, the journal, names, rows and the report have none."""
    text = """
    base: http://127.0.0.1:${param('port')}
    load: {users: 1, iterations: 3}
    flow:
      - get: /ok
        name: by ${param('password')}
        headers: {X-Password: "${param('password')}"}
        check: [{contains: "no ${param('password')}"}]
    """
    jtl, runs = tmp_path / "rows.jtl", tmp_path / "runs"
    with counting(tmp_path) as server:
        given = ("-J", f"port={server.port}", "-J", "password=open-sesame-99")
        kept = ("--jtl", str(jtl), "--out", str(runs))
        done = leadline("scenario", written(tmp_path, text), *given, *kept, "--json")
    assert done.returncode == 0, done.stderr
    (label,) = json.loads(done.stdout)["scenario"]["labels"]
    assert (label["name"], label["ended"]) == ("by ${param('password')}", 3)
    files = [file for file in runs.rglob("*") if file.is_file()]
    assert {"journal.ndjson", "run.json", "report.html", "findings.json"} <= {file.name for file in files}
    texts = {file.name: file.read_text(errors="replace") for file in (*files, jtl)}
    texts |= {"stdout": done.stdout, "stderr": done.stderr}
    assert [name for name, one in texts.items() if "open-sesame" in one] == []
