"""`leadline export`: options that do not go together, and what a receiver of remote write gets."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from test_compare_command import around, made_run

from leadline.cli.app import _status as status

FORMAT = ("--format", "prometheus-remote-write")
TOKEN = "s3cr3t-of-the-receiver"


@dataclass
class Receiver:
    """A server on loopback that keeps what it is sent."""

    answer: int = 204
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kept.requests.append((dict(self.headers.items()), body))
            self.send_response(kept.answer)
            if kept.answer == 307:
                self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            if kept.answer == 400:
                self.wfile.write(b"out of bounds\nof time")

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept.url = f"http://127.0.0.1:{server.server_port}/api/v1/write"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield kept
        server.shutdown()
        thread.join()


@pytest.fixture
def run_folder(tmp_path: Path) -> str:
    return made_run(tmp_path, 1, {"route": around(1.0)})


def export(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["leadline", "export", *arguments])
    return status()


def test_receiver_gets_a_request_as_the_protocol_demands(
    run_folder: str,
    tmp_path: Path,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert export(monkeypatch, run_folder, *FORMAT, "--url", receiver.url, "--token-file", str(tmp_path / "token")) == 0
    ((headers, body),) = receiver.requests
    assert headers["Content-Type"] == "application/x-protobuf" and headers["Content-Encoding"] == "snappy"
    assert headers["X-Prometheus-Remote-Write-Version"] == "0.1.0" and headers["User-Agent"].startswith("leadline/")
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    said = capsys.readouterr()
    assert "samples in 1 request" in said.err and said.out == "" and TOKEN not in said.err
    assert export(monkeypatch, run_folder, *FORMAT, "-o", str(tmp_path / "figures")) == 0
    assert (tmp_path / "figures").read_bytes() == body and b"leadline_throughput_bps" in body


@pytest.mark.parametrize(("answer", "says"), [(400, "answered 400: out of bounds of time"), (307, "answered 307")])
def test_refusal_is_one_line_and_fails(  # noqa: PLR0917
    run_folder: str,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: int,
    says: str,
) -> None:
    receiver.answer = answer
    assert export(monkeypatch, run_folder, *FORMAT, "--url", receiver.url) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_receiver_that_does_not_answer_is_one_line(
    run_folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--url", "http://127.0.0.1:1/api/v1/write", "--retries", "0")
    assert export(monkeypatch, run_folder, *FORMAT, *where) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be reached: Connection refused" in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (FORMAT, "it is binary; give --url URL, or --output FILE"),
        ((*FORMAT, "--url", "ftp://here/"), "--url ftp://here/: not a URL"),
        ((*FORMAT, "--url", "http://here:port/"), "not a URL"),
        ((*FORMAT, "--url", "http://user:word@here/"), "it contains credentials"),
        ((*FORMAT, "--url", "http://here/", "-o", "file"), "exclude each other"),
        ((*FORMAT, "--url", "http://here/", "--token-file", "/nowhere"), "--token-file /nowhere: No such file"),
        ((*FORMAT, "-o", "file", "--token-file", "/nowhere"), "there is no --url"),
        (("--format", "csv", "--url", "http://here/"), "format csv is not sent"),
        (("--format", "csv", "--retries", "3"), "--retries: there is no --url to send to"),
        ((*FORMAT, "--url", "http://127.0.0.1:1/é"), "http://127.0.0.1:1/é: its path is not ASCII; write é as %C3%A9"),
        ((*FORMAT, "--url", "http://a..b/"), "--url http://a..b/: not a URL"),
        ((*FORMAT, "--url", f"http://{'a' * 70}.test/"), "a.test/: not a URL"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(
    run_folder: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    says: str,
) -> None:
    assert export(monkeypatch, run_folder, *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line and "user:word" not in line


@pytest.mark.usefixtures("damaged_journals")
def test_damage_of_a_journal_is_named_beside_each_format(
    run_folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (Path(run_folder) / "journal.ndjson").open("a") as journal:
        journal.write('garbled\n{"record": "tor')
    said = []
    for form in ("csv", "junit", "openmetrics", "influx"):
        assert export(monkeypatch, run_folder, "--format", form) == 0
        said.append(capsys.readouterr().err)
    assert len(said[0].splitlines()) == 2 and "last line is torn" in said[0]
    assert said == [said[0]] * 4
