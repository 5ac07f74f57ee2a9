"""How a run ends that the user interrupts: Ctrl-C once and twice, SIGTERM, SIGKILL at several moments. What had
arrived is not lost, and nothing is left on the machine.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_scripts import cgroups_of, network_names
from real_runs import (
    LONG,
    OPENVPN,
    ROUTE,
    SHORT,
    WIREGUARD,
    CliSandbox,
    Entry,
    Run,
    await_end,
    figures,
    open_sandbox,
    progress_of,
    record,
    records,
    report,
    write_plan,
)

from waiting import WITHIN_S

# The tests of Ctrl-C on a terminal send it too.
OF_A_TERMINAL = pytest.param(signal.SIGINT, marks=pytest.mark.full_matrix)
pytestmark = [pytest.mark.lab, pytest.mark.apart, pytest.mark.takes(10)]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[CliSandbox]:
    with open_sandbox(tmp_path) as opened:
        yield opened


def check_what_was_measured(sandbox: CliSandbox, run: Run, status: str, tests: list[str]) -> None:
    """The journal tells how it ended; results and report have the figures of what was under way, too."""
    [folder] = sandbox.folders()
    entries = run.journal()
    assert [test["status"] for test in records(entries, "test-end")] == tests
    kept_figures = figures(folder)
    assert kept_figures["c01/1", "short", "transactions"] > 0
    assert kept_figures["c01/1", "long", "received_bytes"] > 0
    document, page = report(folder)
    assert document["status"] == status
    [trial] = document["trials"]
    assert [test["status"] for test in trial["tests"]] == ["done", "interrupted"]
    assert f"run was {status}" in page
    assert sandbox.left_behind() == []


@pytest.mark.parametrize("number", [OF_A_TERMINAL, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_ends_the_run_in_order(sandbox: CliSandbox, number: signal.Signals) -> None:
    run = sandbox.run(write_plan(sandbox.folder, [ROUTE], [SHORT, LONG], repeat=2), "--json")
    run.wait_for(progress_of("long"))
    run.process.send_signal(number)
    ended = run.finish()
    assert ended.code == 130, ended.err
    assert ended.document["status"] == "interrupted"
    assert "stopping after cleanup; press Ctrl-C again to stop at once" in ended.err
    assert "Traceback" not in ended.err
    assert [end["status"] for end in records(run.journal(), "trial-end")] == ["interrupted"]
    assert [end["status"] for end in records(run.journal(), "run-end")] == ["interrupted"]
    check_what_was_measured(sandbox, run, "interrupted", ["done", "interrupted"])


@pytest.mark.parametrize("phase", ["build", "bring-up"])
def test_signal_before_a_test_starts_no_test(sandbox: CliSandbox, phase: str) -> None:
    """Building and bringing up are broken off; no test begins."""
    sut = WIREGUARD if phase == "bring-up" else ROUTE
    run = sandbox.run(write_plan(sandbox.folder, [sut], [LONG], clients=4))
    run.wait_for(record("phase", phase=phase, edge="begin"))
    run.process.send_signal(signal.SIGINT)
    ended = run.finish()
    assert (ended.code, "Traceback" in ended.err) == (130, False), ended.err
    assert [end["status"] for end in records(run.journal(), "trial-end")] == ["interrupted"]
    assert all(end["status"] == "interrupted" for end in records(run.journal(), "test-end"))
    assert sandbox.left_behind() == []


def test_signal_during_a_failing_bring_up_ends_it(sandbox: CliSandbox) -> None:
    """Bringing up would go on for its whole time limit."""
    if shutil.which("openvpn", path=f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin") is None:
        pytest.skip("openvpn is not installed")
    run = sandbox.run(write_plan(sandbox.folder, [OPENVPN | {"max_clients": 1}], [LONG], clients=2))
    run.until(lambda: sum(map(is_daemon, run.journal())) == 2)
    run.process.send_signal(signal.SIGINT)
    assert run.finish().code == 130
    assert records(run.journal(), "bring-up") == []
    assert [end["status"] for end in records(run.journal(), "trial-end")] == ["interrupted"]
    assert sandbox.left_behind() == []


def is_daemon(entry: Entry) -> bool:
    """Whether an entry tells that OpenVPN's client was started."""
    event = entry.get("event") or {}
    return (event.get("type"), event.get("task")) == ("prepared", "openvpn-client")


def hold_up(run: Run) -> None:
    """Let the client not answer, so that an orderly end would take its time."""
    run.wait_for(progress_of("long"))
    os.kill(run.process_of("client1", "leadline-agent"), signal.SIGSTOP)


def check_end_at_once(sandbox: CliSandbox, run: Run) -> None:
    """Not even the test's end was waited for, and what had arrived is there."""
    assert records(run.journal(), "trial-end") == []
    [folder] = sandbox.folders()
    assert figures(folder)["c01/1", "short", "transactions"] > 0
    assert figures(folder)["c01/1", "long", "received_bytes"] > 0
    assert report(folder)[0]["status"] == "killed"
    assert sandbox.left_behind() == []


@pytest.mark.parametrize("number", [OF_A_TERMINAL, signal.SIGTERM])
def test_second_signal_ends_the_run_at_once(sandbox: CliSandbox, number: signal.Signals) -> None:
    run = sandbox.run(write_plan(sandbox.folder, [ROUTE], [SHORT, LONG]))
    hold_up(run)
    everyone = sandbox.processes()
    assert len(everyone) >= 5  # the command outside and inside, three agents
    run.process.send_signal(number)
    # Two signals that wait together are one: the second comes when the first has been taken.
    assert run.process.stderr is not None
    assert any("press Ctrl-C again to stop at once" in line for line in iter(run.process.stderr.readline, ""))
    run.process.send_signal(number)
    assert run.finish().code == 130
    await_end(everyone)
    check_end_at_once(sandbox, run)


class Terminal:
    """A terminal that a command has as its own, with what it shows."""

    def __init__(self, sandbox: CliSandbox, plan: Path) -> None:
        self._ours, theirs = pty.openpty()
        self.shown = b""
        ends = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "text": False}
        # The command leads the session, and so the foreground group; `setsid` runs it in its own place.
        self.run = sandbox.run(plan, wrap=("setsid", "--ctty"), **ends)
        os.close(theirs)

    def type(self, key: bytes) -> None:
        """Press a key; the terminal decides what it means."""
        os.write(self._ours, key)

    def read_screen(self) -> bytes:
        """Everything that has been shown by now."""
        while select.select([self._ours], [], [], 0)[0]:
            try:
                self.shown += os.read(self._ours, 65536)
            except OSError:  # Linux reports this when no process has the other end any more
                break
        return self.shown

    def end(self) -> int:
        """The command's status; what it shows is taken meanwhile, or it would have to wait."""
        deadline = time.monotonic() + WITHIN_S
        while self.run.process.poll() is None:
            assert time.monotonic() < deadline
            self.read_screen()
            select.select([self._ours], [], [], 0.05)
        self.read_screen()
        os.close(self._ours)
        return self.run.process.returncode


def test_ctrl_c_on_a_terminal_ends_the_run_in_order(sandbox: CliSandbox) -> None:
    terminal = Terminal(sandbox, write_plan(sandbox.folder, [ROUTE], [SHORT, LONG]))
    terminal.run.until(lambda: terminal.read_screen() and any(map(progress_of("long"), terminal.run.journal())))
    terminal.type(b"\x03")
    assert terminal.end() == 130
    shown = terminal.shown.decode()
    assert shown.count("stopping after cleanup") == 1
    assert "Traceback" not in shown
    assert "report:" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is back
    check_what_was_measured(sandbox, terminal.run, "interrupted", ["done", "interrupted"])


def test_second_ctrl_c_on_a_terminal_ends_the_run_at_once(sandbox: CliSandbox) -> None:
    terminal = Terminal(sandbox, write_plan(sandbox.folder, [ROUTE], [SHORT, LONG]))
    hold_up(terminal.run)
    terminal.type(b"\x03")
    terminal.run.until(lambda: b"stopping after cleanup" in terminal.read_screen())
    terminal.type(b"\x03")
    assert terminal.end() == 130
    shown = terminal.shown.decode()
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    check_end_at_once(sandbox, terminal.run)


MOMENTS: dict[str, Callable[[Entry], bool]] = {
    "build": record("phase", phase="build", edge="begin"),
    "bring-up": record("phase", phase="bring-up", edge="begin"),
    "test": progress_of("long"),
}


@pytest.mark.parametrize("moment", ["build", pytest.param("bring-up", marks=pytest.mark.full_matrix), "test"])
def test_killed_run_leaves_nothing_behind(sandbox: CliSandbox, moment: str) -> None:
    names = network_names()
    plan = write_plan(sandbox.folder, [WIREGUARD], [SHORT, LONG])
    run = sandbox.run(plan)
    run.wait_for(MOMENTS[moment])
    everyone = sandbox.processes()
    run.process.kill()
    run.finish()
    await_end(everyone)
    assert sandbox.processes() == set()
    assert network_names() == names
    [folder] = sandbox.folders()
    kept_figures = figures(folder)
    document, page = report(folder)
    assert document["status"] == "killed"
    assert "run was killed" in page
    assert [trial["status"] for trial in document["trials"]] == ["interrupted"]
    if moment == "test":
        assert kept_figures["c01/1", "short", "transactions"] > 0
        assert kept_figures["c01/1", "long", "received_bytes"] > 0
    # A folder (and a cgroup, where there can be one) waits for the next start.
    assert sandbox.left_behind() != []
    assert sandbox.run(plan, "--only", "short").finish().code == 0
    assert sandbox.left_behind() == []
    assert network_names() == names


def test_killed_jail_process_is_reported_and_cleaned_up(sandbox: CliSandbox) -> None:
    """As the kernel does when memory runs out: the outside says so and cleans up."""
    run = sandbox.run(write_plan(sandbox.folder, [ROUTE], [SHORT, LONG]))
    run.wait_for(progress_of("long"))
    [inside] = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
    os.kill(int(inside), signal.SIGKILL)
    assert run.finish().code == 137
    assert cgroups_of({run.process.pid}) == []
    assert sandbox.left_behind() == []
    assert report(sandbox.folders()[0])[0]["status"] == "killed"
