"""The single-test commands against `leadline serve`, both real, on loopback: documents, targets, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import started_command

from in_process import leadline
from leadline.agents import binary
from waiting import WITHIN_S, free_port, until

pytestmark = pytest.mark.agent


@dataclass(frozen=True, slots=True)
class Server:
    """Where it answers."""

    port: int
    http_port: int


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    ports = Server(free_port(), free_port())
    argv = [
        started_command.program,
        "serve",
        "--bind",
        "127.0.0.1",
        "-p",
        str(ports.port),
        "--http-port",
        str(ports.http_port),
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert "listening" in process.stdout.readline()
        yield ports
        process.send_signal(signal.SIGINT)
        process.wait(WITHIN_S)


def measure(server: Server, kind: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document of a measurement."""
    where = ["127.0.0.1", "-p", str(server.port)]
    if kind == "http":
        where = [f"http://127.0.0.1:{server.http_port}/"]
    ended = leadline(kind, *where, "--json", *arguments)
    return ended.returncode, json.loads(ended.stdout)


@pytest.mark.parametrize(
    ("kind", "options", "metric"),
    [
        # Who may not run for a while has time enough after that; the others end by their numbers.
        ("tcp", ["--rate", "10mbit", "-d", "4s"], "throughput_bps"),
        ("udp", ["--rate", "1mbit", "-n", "50", "-d", "60s"], "lost"),
        ("rr", ["-n", "50", "-d", "60s", "--timeout", "60s"], "latency_p99_us"),
        ("http", ["--rate", "100", "-n", "50", "-d", "60s"], "requests_per_s"),
    ],
)
def test_json_is_one_document_with_the_headline_metric(
    server: Server, kind: str, options: list[str], metric: str
) -> None:
    code, document = measure(server, kind, *options)
    assert (code, document["schema"], document["command"]) == (0, "leadline.result/1", kind)
    assert document["metrics"][metric]["value"] is not None
    assert document["errors"] == {}


@pytest.mark.parametrize(
    ("targets", "outcomes", "code"),
    [
        (["transactions > 0"], ["met"], 0),
        (["transactions > 0", "transactions < 0"], ["met", "missed"], 3),
    ],
)
@pytest.mark.decided_by("an exact count")
def test_target_outcome_decides_the_exit_code(
    server: Server, targets: list[str], outcomes: list[str], code: int
) -> None:
    """A count is what was counted, however busy the machine is with other things."""
    options = [part for target in targets for part in ("--target", target)]
    ended, document = measure(server, "rr", "-d", "1s", *options)
    assert ([target["outcome"] for target in document["targets"]], ended) == (outcomes, code)


@pytest.mark.decided_by("nothing: no load runs")
def test_a_target_that_cannot_be_read_is_refused() -> None:
    assert (
        leadline("rr", "127.0.0.1", "--target", "transactions > 0", "--target", "retransmits_unknown").returncode == 2
    )


@pytest.mark.decided_by("the number of datagrams: one has no jitter")
def test_undecided_target_exits_with_4(server: Server) -> None:
    """One datagram has no jitter."""
    code, document = measure(server, "udp", "-d", "1s", "-n", "1", "--rate", "1mbit", "--target", "jitter_us < 1")
    assert (code, document["targets"][0]["outcome"]) == (4, "undecided")


def build_profile() -> str:
    """What the agent of the tests says of itself."""
    said = subprocess.run([binary.agent_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    return said.strip().rpartition("(")[2].rstrip(")")


def test_a_kept_run_holds_no_secret_and_names_the_agents_profile(server: Server, tmp_path: Path) -> None:
    secrets = ["hunter2", "c00kie", "b0dy-text", "t0ken-in-a-file", "bWU6aHVudGVyMg"]
    (tmp_path / "token").write_text("t0ken-in-a-file")
    out = tmp_path / "runs"
    options = ["-n", "20", "-X", "POST", "--body", "b0dy-text", "-H", "Cookie: c00kie", "--out", str(out)]
    for authorization in (["--basic", "me:hunter2"], ["--bearer", f"@{tmp_path}/token"]):
        code, document = measure(server, "http", *options, *authorization)
        assert code == 0
        assert document["metrics"]["requests"]["value"] == 20
        assert not any(secret in json.dumps(document) for secret in secrets)
        assert set(document["build_profiles"].values()) == {build_profile()}
    kept = [path for path in out.rglob("*") if path.is_file()]
    assert {"run.json", "journal.ndjson", "report.html"} <= {path.name for path in kept}
    hosts = [json.loads(path.read_text())["hosts"] for path in kept if path.name == "run.json"]
    assert {facts["build_profile"] for one in hosts for facts in one.values()} == {build_profile()}
    assert [path for path in kept if any(secret.encode() in path.read_bytes() for secret in secrets)] == []


def test_what_names_call_secret_is_in_no_file_and_no_output(server: Server, tmp_path: Path) -> None:
    """Parameters of URLs and header fields, in a run's folder, documents, layouts, rows of requests, and errors."""
    out = tmp_path / "runs"
    url = f"http://127.0.0.1:{server.http_port}/?api_key=s3cret-1&size=10&X-Amz-Signature=s3cret-2"
    names = ("X-Auth-Key", "X-Passwd", "X-Credential", "Private-Key", "X-Amz-Security-Token")
    fields = [word for number, name in enumerate(names, 3) for word in ("-H", f"{name}: s3cret-{number}")]
    flow = "flow:\n  - {get: '/?access_token=s3cret-8'}\n  - {get: '/?status=404&sig=s3cret-9', check: [200]}\n"
    base = f"http://127.0.0.1:{server.http_port}"
    (tmp_path / "users.yaml").write_text(f"base: {base}\nload: {{users: 1, iterations: 2}}\n{flow}")
    kept = ["--jtl", str(tmp_path / "rows.jtl"), "--summary-export", str(tmp_path / "k6.json")]
    refused = f"http://s3cret-10@127.0.0.1:{free_port()}/"
    outputs = [
        leadline("http", url, *fields, "-n", "20", "--out", str(out), "--json", "--no-calibrate"),
        leadline("http", url, "-n", "20", "--format", "wrk", "--no-calibrate"),
        leadline("http", url, "-n", "20", "--keep-header", "api_key", "--out", str(out), "--no-calibrate"),
        leadline("scenario", str(tmp_path / "users.yaml"), *kept, "--single-requests", "urls", "--out", str(out)),
        leadline("http", refused, "--json"),
    ]
    assert [one.returncode for one in outputs] == [0, 0, 0, 0, 2], [one.stderr for one in outputs]
    texts = {f"output {number}": one.stdout + one.stderr for number, one in enumerate(outputs)}
    files = [path for path in (*out.rglob("*"), tmp_path / "rows.jtl", tmp_path / "k6.json") if path.is_file()]
    assert {"run.json", "journal.ndjson", "findings.json", "report.html", "requests.parquet"} <= {
        path.name for path in files
    }
    texts |= {str(path): path.read_bytes().decode(errors="replace") for path in files}
    found = {name: sorted(set(re.findall("s3cret-[0-9]+", text))) for name, text in texts.items()}
    assert {tuple(secrets) for secrets in found.values()} == {(), ("s3cret-1",)}
    shown = {Path(name).parent.name for name, secrets in found.items() if secrets}
    assert len(shown) == 1, f"only the folder of the run that keeps api_key: {found}"
    assert "access_token=***" in texts[str(tmp_path / "rows.jtl")]


def test_input_that_the_agent_refuses_is_wrong_input() -> None:
    ended = leadline("http", "https://127.0.0.1:1/", "--ciphers", "TLS_NO_SUCH", "--no-calibrate")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "there is no cipher suite `TLS_NO_SUCH`" in ended.stderr


def test_refused_connection_is_one_error_with_advice() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, and never listening
        ended = leadline("tcp", "127.0.0.1", "-p", str(held.getsockname()[1]), "-d", "1s")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert "connection refused; is `leadline serve` running there" in ended.stderr


@pytest.mark.decided_by("the signal")
def test_ctrl_c_keeps_what_was_measured(server: Server, tmp_path: Path) -> None:
    argv = [started_command.program, "tcp", "127.0.0.1", "-p", str(server.port), "-d", "120s", "--rate", "10mbit"]
    with subprocess.Popen(
        [*argv, "--json", "--out", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        await_progress(process, tmp_path)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 130, err
    document = json.loads(out)
    assert document["metrics"]["received_bytes"]["value"] > 0
    assert document["validity"]["verdict"] == "incomplete"
    [folder] = tmp_path.iterdir()
    assert json.loads(leadline("results", str(folder), "--json").stdout)["rows"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.decided_by("the signal")
def test_signal_to_the_whole_group_keeps_what_was_measured(
    server: Server, number: signal.Signals, tmp_path: Path
) -> None:
    """As `timeout` and a terminal that is closed send it."""
    url = f"http://127.0.0.1:{server.http_port}/"
    argv = [started_command.REAL, "http", url, "-d", "120s", "--rate", "100", "--json", "--out", str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        await_progress(process, tmp_path)
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 130, err
    document = json.loads(out)
    assert document["metrics"]["requests"]["value"] > 0
    assert document["validity"]["verdict"] == "incomplete"


@pytest.mark.parametrize("line", [b'"type":"finished"', b'"test-end"', b'"run-end"'], ids=bytes.decode)
def test_full_disk_is_the_error_and_leaves_the_figures(
    server: Server, fill_disk: Callable[[bytes], None], line: bytes, tmp_path: Path
) -> None:
    fill_disk(line)
    options = ["-d", "3s", "--json", "--out", str(tmp_path)]
    ended = leadline("rr", "127.0.0.1", "-p", str(server.port), *options)
    assert ended.returncode == 1, ended.stderr
    document = json.loads(ended.stdout)
    assert document["schema"] == "leadline.result/1"
    assert document["metrics"]["transactions"]["value"] > 0
    assert ended.stderr.count("no space left on the device") == 1


@pytest.mark.parametrize("option", ["--hdr", "--jtl", "--summary-export"])
def test_full_disk_of_an_option_leaves_the_document(server: Server, option: str, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.http_port}/"
    scenario = tmp_path / "user.yaml"
    scenario.write_text(f"load: {{users: 1, iterations: 20}}\nflow: [{{get: '{url}'}}]\n")
    command = ["http", url, "-n", "20", "-d", "60s"] if option == "--hdr" else ["scenario", str(scenario)]
    ended = leadline(*command, option, "/dev/full", "--json")
    assert ended.returncode == 1, ended.stderr
    assert json.loads(ended.stdout)["metrics"]["requests"]["value"] == 20
    [line] = ended.stderr.splitlines()
    assert line.startswith(f"leadline: {option} /dev/full: No space left on device")


def await_progress(process: subprocess.Popen[str], folder: Path) -> None:
    """Return once the journal tells of bytes that arrived."""
    until(lambda: process.poll() is not None or any(map(has_received, folder.glob("*/journal.ndjson"))))
    if process.poll() is not None:
        pytest.fail(f"it ended with {process.communicate()}")


def has_received(journal: Path) -> bool:
    events = [json.loads(line).get("event") or {} for line in journal.read_bytes().split(b"\n")[:-1]]
    flows = [flow for event in events if event.get("type") == "progress" for flow in event["flows"]]
    return any(flow["received_bytes"] for flow in flows)


def test_taken_port_is_refused_in_one_line() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        argv = [started_command.program, "serve", "--bind", "127.0.0.1", "-p", str(port)]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert f"127.0.0.1:{port}: address already in use" in ended.stderr
