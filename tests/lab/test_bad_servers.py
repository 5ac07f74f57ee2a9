"""Bad servers: whatever a server sends, leaves out or breaks off, the client ends in a bounded time with one line and
exit code 1, closes its connections, and shows what it measured.
"""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
import scripted_servers as servers
from scripted_servers import Act, Script, frame, sending, sending_for_ever, serving

from in_process import leadline

pytestmark = [
    pytest.mark.agent,
    pytest.mark.takes(22),
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
]

AT_ONCE = 6
LENGTH = "1500ms"
"""Long enough that no process stalls for all of it: each flow sends something."""
PATIENCE = {"LEADLINE_PEER_PATIENCE_MS": "3000"}
"""Every wait for the server ends after this time, instead of the 10 to 30 s that it has otherwise."""
TIMED_OUT = ("timed out", "no report in time", "no answer", "does not ask for results", "sends no results in time")
CLOSED = ("closed the session", "closed the connection", "broken pipe", "connection reset")
BROKEN = ("connection reset", "broken pipe")
NO_PROTOCOL = ("does not speak Leadline's protocol", "answers nonsense")

WAYS: dict[str, tuple[Act, tuple[str, ...]]] = {
    "silent": (servers.fall_silent, TIMED_OUT),
    "closes": (servers.close, CLOSED),
    "resets": (servers.reset, BROKEN),
    "resets-control": (servers.reset_control, BROKEN),
    "lies-about-a-length": (sending(b"\x7f\xff\xff\xff"), NO_PROTOCOL),
    "ends-within-a-message": (sending(struct.pack(">I", 1000) + b'{"say":', servers.close), (*CLOSED, *NO_PROTOCOL)),
    "speaks-http": (sending(b"HTTP/1.1 400 Bad Request\r\n\r\n"), NO_PROTOCOL),
    "other-version": (sending(frame({"say": "welcome\x1b[31m\n"})), NO_PROTOCOL),
    "out-of-turn": (sending(frame({"say": "challenge", "nonce": "00" * 32})), ("answers out of turn",)),
    "sends-for-ever": (
        sending_for_ever(lambda: frame(servers.progress(1))),
        ("answers out of turn", "far more often", "broken pipe", "connection reset"),
    ),
}
"""How a server breaks off, and what the client may say of it."""
OWN_ALONE = ("other-version", "out-of-turn", "sends-for-ever")


@dataclass(frozen=True)
class Case:
    """A server that breaks off at a stage."""

    command: str
    script: Script
    stage: str
    way: str
    is_of_matrix: bool = False
    """Whether `make test-all` alone runs it: the same way at another stage, or over another transport."""

    @property
    def measured(self) -> bool | None:
        """Whether the client has figures by then; None if that depends on what it has read of what was sent to it."""
        return None if self.command == "tcp -R" else self.stage in ("running", "ended", "told", "reported")

    def __str__(self) -> str:
        return f"{self.command}: {self.stage}: {self.way}".replace(" ", "-")


def cases(command: str, script: Script, stages: str, *ways: str, of_matrix: bool = False) -> Iterator[Case]:
    return (Case(command, script, stage, way, of_matrix) for stage in stages.split() for way in ways)


OF_IPERF3 = [way for way in WAYS if way not in OWN_ALONE]
CASES = [
    *cases("tcp", servers.leadline_tcp, "asked granted compared arrived running ended", "silent"),
    *cases("tcp", servers.leadline_tcp, "asked running", "closes"),
    *cases("tcp", servers.leadline_tcp, "granted compared arrived ended", "closes", of_matrix=True),
    *cases("tcp -R", servers.leadline_down, "begun", "silent", "closes"),
    *cases("tcp", servers.leadline_tcp, "running", *(way for way in WAYS if way not in ("silent", "closes"))),
    *cases(
        *("tcp", servers.leadline_tcp, "asked"),
        *(way for way in WAYS if way not in ("silent", "closes")),
        of_matrix=True,
    ),
    *cases("tcp -R", servers.leadline_down, "running", "resets", "resets-control", "sends-for-ever"),
    *cases("udp --rate 1mbit", servers.leadline_udp, "compared greeted running", "silent"),
    *cases("udp --rate 1mbit", servers.leadline_udp, "running", "closes"),
    *cases("rr", servers.leadline_rr, "running", "closes", "resets-control"),
    *cases("tcp --peer iperf3", servers.iperf3_tcp, "asked agreed arrived prepared ended told reported", "silent"),
    *cases("tcp --peer iperf3", servers.iperf3_tcp, "running", *OF_IPERF3[1:]),
    *cases("tcp --peer iperf3", servers.iperf3_tcp, "asked told", *OF_IPERF3[1:], of_matrix=True),
    *cases("udp --rate 1mbit --peer iperf3", servers.iperf3_udp, "asked agreed greeted ended told reported", "silent"),
    *cases("udp --rate 1mbit --peer iperf3", servers.iperf3_udp, "asked running told", *OF_IPERF3[1:], of_matrix=True),
]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str
    address: str

    @property
    def line(self) -> str:
        """Its one line of error."""
        lines = self.err.splitlines()
        assert self.code == 1 and len(lines) == 1, (self.code, self.err)
        return lines[0]


def against(script: Script, command: str, stage: str | None, act: Act, *options: str | Path) -> Ended:
    kind, *rest = command.split()
    with serving(script, stage, act) as server:
        arguments = (kind, "127.0.0.1", "-p", str(server.port), *rest, "-d", LENGTH, "-i", "0", *options)
        done = cli.call(*arguments, variables=PATIENCE if act is servers.fall_silent and stage else None)
        assert server.came, (done.stdout, done.stderr)
    return Ended(done.returncode, done.stdout, done.stderr, server.address)


@pytest.fixture(scope="module")
def started_command(quick_command: Path) -> None:
    """Commands run without their start."""
    cli.quick_command = quick_command


@pytest.fixture(scope="module")
def ends(started_command: None, request: pytest.FixtureRequest) -> dict[str, Ended | BaseException]:
    """How the client of each case ended that this session runs; several run at once."""
    of_tests = [getattr(item, "callspec", None) for item in request.session.items]
    chosen = {str(spec.params["case"]): spec.params["case"] for spec in of_tests if spec and "case" in spec.params}
    chosen = {name: case for name, case in chosen.items() if isinstance(case, Case)}

    def run(case: Case) -> Ended | BaseException:
        try:
            return against(case.script, case.command, case.stage, WAYS[case.way][0])
        except (AssertionError, OSError, subprocess.SubprocessError) as failure:
            return failure

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(chosen, pool.map(run, chosen.values()), strict=True))


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.full_matrix] if case.is_of_matrix else []) for case in CASES],
    ids=str,
)
def test_client_ends_with_one_line_that_names_the_server(ends: dict[str, Ended | BaseException], case: Case) -> None:
    ended = ends[str(case)]
    if isinstance(ended, BaseException):
        raise ended
    assert ended.address in ended.line
    assert any(says in ended.line for says in WAYS[case.way][1]), ended.line
    assert "os error" not in ended.line and ended.line.isprintable()
    has_figures = "throughput" in ended.out or "transactions" in ended.out
    assert case.measured in (None, has_figures), ended.out


# --- Lies in the figures ----------------------------------------------------------------------------------------------

MOST = 2**62
HUGE = 1e15
COUNTS = ("duplicates", "reordered", "stale", "strays", "late_answers", "retransmits", "socket_drops", "unsent_units")
WILD_ROW = {**dict.fromkeys(COUNTS, MOST), "jitter_us": HUGE, "rtt_mean_us": -HUGE, "start_ns": 0, "end_ns": MOST}
WILD_THREAD = {"name": "a\x1b[2J\nb", "user_s": HUGE, "system_s": -1.0, "wall_s": 0.0}
EVIL_ERRORS = {"broken\n\x1b[31mname": MOST}


def lying(**row: Any) -> Script:
    return partial(servers.leadline_tcp, report=servers.report_of(row))


@pytest.mark.parametrize(
    ("command", "script", "claim"),
    [
        ("tcp", lying(received_bytes=MOST), "claims to have received"),
        ("tcp -R", partial(servers.leadline_down, claimed_bytes=7), "claims to have sent 7 bytes of flow 0"),
        ("udp --rate 1mbit", partial(servers.leadline_udp, more=1), "claims to have received"),
        (
            "tcp --peer iperf3",
            partial(servers.iperf3_tcp, results=servers.results_of(2**62)),
            "claims to have received",
        ),
        (
            "udp --rate 1mbit --peer iperf3",
            partial(servers.iperf3_udp, more_datagrams=10_000),
            "claims to have received",
        ),
        ("udp --rate 1mbit --peer iperf3", partial(servers.iperf3_udp, jitter=-0.5), "claims a jitter of -5e5 µs"),
        ("udp --rate 1mbit --peer iperf3", partial(servers.iperf3_udp, jitter=1e300), "claims a figure of 1e306"),
    ],
)
def test_report_that_cannot_be_true_is_an_error(
    started_command: None, command: str, script: Script, claim: str
) -> None:
    ended = against(script, command, None, servers.fall_silent)
    assert claim in ended.line and ended.address in ended.line
    assert "throughput" in ended.out


def test_number_that_cannot_be_is_an_error(started_command: None) -> None:
    """Sums of such numbers are not finite."""
    report = servers.report_of({"received_bytes": 1, "jitter_us": 1e308})
    ended = against(partial(servers.leadline_tcp, report=report), "tcp", None, servers.fall_silent)
    assert "claims a figure of 1e308" in ended.line and "throughput" in ended.out


@pytest.mark.parametrize("options", [("--json",), ("--out",)])
def test_wild_numbers_of_a_server_break_no_document(
    started_command: None, tmp_path: Path, options: tuple[str, ...]
) -> None:
    load = {"threads": [WILD_THREAD], "pushback": MOST, "late_p99_us": HUGE, "engine": "x\x1b[0m"}
    report = servers.report_of({"received_bytes": 1, **WILD_ROW}, EVIL_ERRORS, **load)
    folder = (tmp_path,) if options == ("--out",) else ()
    ended = against(partial(servers.leadline_tcp, report=report), "tcp", None, servers.fall_silent, *options, *folder)
    assert ended.code == 0 and "Traceback" not in ended.err, ended.err
    assert "\x1b" not in ended.out
    if options == ("--json",):
        document = json.loads(ended.out)
        assert document["metrics"]["throughput_bps"]["value"] is not None
        assert document["errors"] == {"peer_broken  [31mname": MOST}


@pytest.mark.decided_by("the server, which fails")
def test_failed_measurement_leaves_a_run_that_results_takes(started_command: None, tmp_path: Path) -> None:
    ended = against(servers.leadline_tcp, "tcp", "ended", servers.close, "--out", tmp_path)
    assert f"samples and report in {tmp_path}" in ended.err
    (folder,) = tmp_path.iterdir()
    found = leadline("results", folder, "--json")
    rows = {row["metric"]: row for row in json.loads(found.stdout)["rows"] if row["trial"]}
    assert rows["throughput_bps"]["validity"] == "incomplete"


def test_document_of_iperf3_has_the_error(started_command: None) -> None:
    ended = against(servers.iperf3_tcp, "tcp --peer iperf3", "told", servers.close, "--format", "iperf3-json")
    document = json.loads(ended.out)
    assert ended.address in document["error"] and document["error"] in ended.line
