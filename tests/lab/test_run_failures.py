"""What goes wrong in a run, and what then happens: the trial is named and failed, the rest go on, what was measured is
kept. Through the real command line, on real labs.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_scripts import UNPRIVILEGED_UID
from real_runs import (
    ADDRESSES,
    LONG,
    OPENVPN,
    ROUTE,
    SHORT,
    WIREGUARD,
    CliSandbox,
    Run,
    await_end,
    figures,
    journal_of,
    open_sandbox,
    progress_of,
    records,
    report,
    unprivileged_sandbox,
    write_plan,
)

from leadline.agents import binary
from report_page import packed_cases

pytestmark = [pytest.mark.lab, pytest.mark.apart, pytest.mark.takes(10)]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[CliSandbox]:
    with open_sandbox(tmp_path) as opened:
        yield opened


@pytest.fixture
def quick_sandbox(sandbox: CliSandbox, quick_command: Path) -> CliSandbox:
    """For runs whose own process no test looks at."""
    sandbox.command = (str(quick_command),)
    return sandbox


def needs_openvpn() -> None:
    if shutil.which("openvpn", path=f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin") is None:
        pytest.skip("openvpn is not installed")


def test_run_without_failures_exits_0_with_one_document(sandbox: CliSandbox) -> None:
    """What the other tests' failures are held against, with one JSON document on stdout."""
    ended = sandbox.run(write_plan(sandbox.folder, [ROUTE], [SHORT]), "--json").finish()
    assert ended.code == 0, ended.err
    [folder] = sandbox.folders()
    assert (ended.document["status"], ended.document["folder"]) == ("done", str(folder))
    assert figures(folder)["c01/1", "short", "transactions"] > 0
    assert sandbox.left_behind() == []


@pytest.mark.parametrize(
    ("sut", "said"),
    [
        (OPENVPN | {"binary": "/bin/false"}, "/bin/false is not OpenVPN"),
        (OPENVPN | {"cipher": "nonsense"}, "openvpn-server on gateway"),
    ],
)
def test_a_gateway_that_never_comes_up(sandbox: CliSandbox, sut: dict[str, Any], said: str) -> None:
    needs_openvpn()
    ended = sandbox.run(write_plan(sandbox.folder, [sut, ROUTE], [SHORT]), "--json").finish()
    assert ended.code == 1, ended.err
    failed, done = sorted(ended.document["trials"], key=lambda trial: trial["case"])
    assert (failed["status"], failed["tests"], done["status"]) == ("failed", [], "done")
    assert said in failed["error"]
    assert "c01/1" in ended.err
    [folder] = sandbox.folders()
    assert {trial for trial, _, _ in figures(folder)} == {"c02/1"}
    _, page = report(folder)
    assert said in page
    assert sandbox.left_behind() == []


def test_a_missing_binary_is_reported_before_anything_is_built(sandbox: CliSandbox) -> None:
    plan = write_plan(sandbox.folder, [ROUTE, OPENVPN | {"binary": "/no/such"}], [SHORT])
    ended = sandbox.run(plan).finish()
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith("leadline: /no/such is not installed or not executable")
    assert (sandbox.folders(), sandbox.left_behind()) == ([], [])


def test_a_binary_that_is_missing_where_the_plan_calls_it_optional(quick_sandbox: CliSandbox) -> None:
    plan = write_plan(quick_sandbox.folder, [ROUTE, OPENVPN | {"binary": "/no/such", "optional": True}], [SHORT])
    ended = quick_sandbox.run(plan).finish()
    assert ended.code == 0, ended.err
    assert "skipped: /no/such is not installed" in ended.err
    assert "1 × skipped" in ended.out
    assert "1 of 2 trials done, 1 skipped" in ended.out
    assert "trials-failed" not in ended.out
    document, page = report(quick_sandbox.folders()[0])
    statuses = {trial["case"]: trial["status"] for trial in document["trials"]}
    assert (document["status"], statuses) == ("done", {"c01": "done", "c02": "skipped"})
    assert "trials-failed" not in page
    assert {summary["case"] for summary in document["summaries"]} == {"c01"}


def test_a_daemon_that_dies_in_mid_trial(sandbox: CliSandbox) -> None:
    needs_openvpn()
    plan = write_plan(sandbox.folder, [OPENVPN], [SHORT, LONG], repeat=1)
    run = sandbox.run(plan)
    run.wait_for(progress_of("long"))
    os.kill(run.process_of("gateway", "openvpn"), signal.SIGKILL)
    ended = run.finish()
    assert ended.code == 1
    check_what_is_kept(sandbox, "openvpn-server on gateway was ended by signal 9")


@pytest.mark.parametrize("host", ["client1", pytest.param("gateway", marks=pytest.mark.full_matrix), "server"])
def test_an_agent_that_is_killed(sandbox: CliSandbox, host: str) -> None:
    run = sandbox.run(write_plan(sandbox.folder, [ROUTE], [SHORT, LONG]))
    run.wait_for(progress_of("long"))
    os.kill(run.process_of(host, "leadline-agent"), signal.SIGKILL)
    assert run.finish().code == 1
    check_what_is_kept(sandbox, f"the agent on {host} is lost: its process was ended by SIGKILL")


def check_what_is_kept(sandbox: CliSandbox, said: str) -> None:
    """The first test of the trial was done; the second one failed by what is `said`."""
    [folder] = sandbox.folders()
    entries = journal_of(folder / "journal.ndjson")
    [end] = records(entries, "trial-end")
    assert end["status"] == "failed"
    assert said in end["error"]["message"]
    assert [test["status"] for test in records(entries, "test-end")] == ["done", "failed"]
    assert [run_end["status"] for run_end in records(entries, "run-end")] == ["failed"]
    assert figures(folder)["c01/1", "short", "transactions"] > 0
    document, page = report(folder)
    assert document["status"] == "failed"
    assert said in page
    assert sandbox.left_behind() == []


def test_after_a_killed_agent_the_other_trials_go_on(sandbox: CliSandbox) -> None:
    """Of two cases, in either order, the one whose test would take ten minutes is killed."""
    ends_by_itself = LONG | {"rate": "100mbit", "bytes": "10MB"}
    axes = {"sut": [ROUTE], "tests.long.bytes": ["100GB", "10MB"]}
    run = sandbox.run(write_plan(sandbox.folder, [], [ends_by_itself], axes=axes, repeat=1))
    run.wait_for(lambda entry: progress_of("long")(entry) and entry["event"]["trial"].startswith("c01/1/"))
    os.kill(run.process_of("client1", "leadline-agent"), signal.SIGKILL)
    ended = run.finish()
    assert ended.code == 1
    [folder] = sandbox.folders()
    ends = {end["trial"]: end["status"] for end in records(journal_of(folder / "journal.ndjson"), "trial-end")}
    assert ends == {"c01/1": "failed", "c02/1": "done"}
    assert figures(folder)["c02/1", "long", "received_bytes"] > 0


def test_a_port_that_is_taken(sandbox: CliSandbox) -> None:
    agent = str(binary.agent_binary())
    holder = [sys.executable, str(Path(__file__).with_name("port_holder.py"))]
    holder += [agent, ADDRESSES["server"], str(sandbox.folder / "once")]
    script = sandbox.folder / "agent"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(holder)} "$@"\n')
    script.chmod(0o755)
    sandbox.environment["LEADLINE_AGENT"] = str(script)
    ended = sandbox.run(write_plan(sandbox.folder, [ROUTE], [SHORT], repeat=2)).finish()
    assert ended.code == 1
    [folder] = sandbox.folders()
    ends = records(journal_of(folder / "journal.ndjson"), "trial-end")
    assert [end["status"] for end in ends] == ["failed", "done"]
    message = ends[0]["error"]["message"]
    assert "serve on server" in message
    assert "10.82.0.2:5201" in message
    assert "address already in use" in message
    assert {trial for trial, _, _ in figures(folder)} == {"c01/2"}
    assert sandbox.left_behind() == []


def test_a_device_that_is_closed_skips_optional_systems_and_refuses_others(quick_sandbox: CliSandbox) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can hide /dev/net/tun")
    hide = 'mount -t tmpfs none /dev/net && exec "$@"'
    wrap = ("unshare", "--mount", "--propagation", "private", "sh", "-c", hide, "sh")
    plan = write_plan(quick_sandbox.folder, [ROUTE, WIREGUARD | {"optional": True}], [SHORT])
    ended = quick_sandbox.run(plan, wrap=wrap).finish()
    assert ended.code == 0, ended.err
    assert "skipped: /dev/net/tun: no such file or directory; wireguard uses a TUN device" in ended.err
    assert "1 of 2 trials done, 1 skipped" in ended.out
    folders = quick_sandbox.folders()
    refused = quick_sandbox.run(write_plan(quick_sandbox.folder, [ROUTE, WIREGUARD], [SHORT]), wrap=wrap).finish()
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "sudo modprobe tun" in refused.err
    assert quick_sandbox.folders() == folders


# `--out` on a file system of 256 KiB: enough for the first test, not for the second one. What stands there is copied
# away in the end, because the file system goes with the mount namespace that only these commands see.
ON_A_SMALL_DISK = """
mount -t tmpfs -o size=256k none "$OUT" && mkdir "$KEPT" && {
    "$@" >"$KEPT/run.out" 2>"$KEPT/run.err"; echo $? >"$KEPT/run.code"
    "$LEADLINE" results "$OUT"/* --json >"$KEPT/results.json"; echo $? >"$KEPT/results.code"
    cp -r "$OUT"/* "$KEPT/folder"
}
"""


@pytest.mark.decided_by("the full disk")
def test_full_disk_ends_the_run_and_is_named(sandbox: CliSandbox) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    chatty = LONG | {"flows": 16, "interval": "10ms"}
    plan = write_plan(sandbox.folder, [ROUTE], [SHORT | {"interval": "500ms"}, chatty])
    kept = sandbox.folder / "kept"
    sandbox.out.mkdir()
    sandbox.environment |= {"OUT": str(sandbox.out), "KEPT": str(kept), "LEADLINE": sandbox.command[0]}
    wrap = ("unshare", "--mount", "--propagation", "private", "sh", "-c", ON_A_SMALL_DISK, "sh")
    assert sandbox.run(plan, "--json", wrap=wrap).finish().code == 0
    stderr = (kept / "run.err").read_text()
    assert (kept / "run.code").read_text() == "1\n", stderr
    assert "journal.ndjson: no space left on the device; free some space" in stderr
    assert "Traceback" not in stderr
    assert "report:" not in stderr  # there was no room for one, and no half of one stands there
    assert "; free some space, then `leadline report " in stderr
    document = json.loads((kept / "run.out").read_text())
    assert 1 <= len(document["problems"]) <= 2, "the journal, and once what is made from it"
    assert document["status"] == document["trials"][0]["status"] == "failed"
    assert "no space left on the device" in document["trials"][0]["error"]
    assert "killed" not in json.dumps(document["validity"]), "the run ended by itself"
    assert (kept / "results.code").read_text() == "0\n"
    rows = json.loads((kept / "results.json").read_text())["rows"]
    assert {row["validity"] for row in rows if row["trial"] and row["test"] == "short"}
    # With room again, everything can be made from the journal.
    document, _ = report(kept / "folder")
    assert [test["test"] for test in document["trials"][0]["tests"]] == ["short", "long"]
    assert document["trials"][0]["tests"][0]["status"] == "done"
    assert document["status"] == "failed"
    assert sandbox.left_behind() == []


def test_no_room_for_a_run_folder(sandbox: CliSandbox) -> None:
    (sandbox.folder / "runs").write_text("a file")
    ended = sandbox.run(write_plan(sandbox.folder, [ROUTE], [SHORT])).finish()
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "runs" in ended.err
    assert sandbox.left_behind() == []


def test_no_root_and_no_user_namespaces(sandbox: CliSandbox) -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    wrap = ("unshare", "-Ur", "sh", "-c", forbid, "sh", "setpriv", "--bounding-set=-all", "--inh-caps=-all")
    ended = sandbox.run(write_plan(sandbox.folder, [ROUTE], [SHORT]), wrap=wrap).finish()
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith("leadline: hosts cannot be created on this machine: ")
    assert "allow it with `sudo sysctl -w user.max_user_namespaces=" in ended.err
    assert (sandbox.folders(), sandbox.left_behind()) == ([], [])


def test_two_runs_at_once_do_not_collide(sandbox: CliSandbox) -> None:
    plan = write_plan(sandbox.folder, [WIREGUARD], [SHORT])
    runs: list[Run] = [sandbox.run(plan, "--json") for _ in range(2)]
    ended = [run.finish() for run in runs]
    assert [one.code for one in ended] == [0, 0], [one.err for one in ended]
    assert len({one.document["folder"] for one in ended}) == 2
    assert len(sandbox.folders()) == 2
    assert sandbox.left_behind() == []


def test_run_without_root_succeeds(tmp_path: Path) -> None:
    with unprivileged_sandbox(tmp_path) as sandbox:
        ended = sandbox.run(write_plan(sandbox.folder, [ROUTE, WIREGUARD], [SHORT]), "--json").finish()
        assert ended.code == 0, ended.err
        assert [trial["status"] for trial in ended.document["trials"]] == ["done", "done"]
        [folder] = sandbox.folders()
        assert folder.stat().st_uid == (os.geteuid() or UNPRIVILEGED_UID)
        assert sandbox.left_behind() == []


@pytest.mark.parametrize(
    ("target", "outcome", "code"), [("rr.transactions > 1", "met", 0), ("rr.transactions < 1", "missed", 3)]
)
@pytest.mark.decided_by("an exact count")
def test_exit_code_follows_the_target_outcome(quick_sandbox: CliSandbox, target: str, outcome: str, code: int) -> None:
    """A count is what was counted, however busy the machine is with other things."""
    rr = {"name": "rr", "kind": "rr", "duration": "1500ms"}
    ended = quick_sandbox.run(write_plan(quick_sandbox.folder, [ROUTE], [rr], targets=[target]), "--json").finish()
    assert ([one["outcome"] for one in ended.document["targets"]], ended.code) == ([outcome], code), ended.err


@pytest.mark.decided_by("the number of transactions, too few for the percentile")
def test_a_target_that_cannot_be_decided(quick_sandbox: CliSandbox) -> None:
    """A hundred transactions do not bound the 99.9th percentile from above, whatever they took."""
    plan = write_plan(quick_sandbox.folder, [ROUTE], [SHORT], targets=["short.latency_p999_us < 60s"])
    ended = quick_sandbox.run(plan, "--json").finish()
    [target] = ended.document["targets"]
    assert (target["outcome"], ended.code) == ("undecided", 4), ended.err
    assert 0 < target["value"] < 60e6


def test_only_and_set_choose_what_is_run(quick_sandbox: CliSandbox) -> None:
    plan = write_plan(quick_sandbox.folder, [WIREGUARD, ROUTE], [SHORT, LONG])
    ended = quick_sandbox.run(plan, "--only", "sut=route", "--only", "short", "--set", "repeat=2", "--json").finish()
    assert ended.code == 0, ended.err
    trials = ended.document["trials"]
    assert [trial["trial"] for trial in trials] == ["c02/1", "c02/2"]
    assert {test["test"] for trial in trials for test in trial["tests"]} == {"short"}


KEY_FILES = {"wireguard": "*.json", "openvpn": "*.key"}


@pytest.mark.parametrize(
    ("sut", "end"),
    [(WIREGUARD, signal.SIGKILL), pytest.param(OPENVPN, signal.SIGINT, marks=pytest.mark.takes(20))],
    ids=["killed", "interrupted"],
)
def test_keys_of_the_lab_are_in_memory_and_end_with_the_run(
    sandbox: CliSandbox, sut: dict[str, str], end: signal.Signals
) -> None:
    """Only their owner reads them meanwhile; no file of the run and no folder for temporary ones ever has them."""
    if sut is OPENVPN:
        needs_openvpn()
    run = sandbox.run(write_plan(sandbox.folder, [sut], [LONG]))
    run.wait_for(progress_of("long"))
    files = key_files(run, KEY_FILES[sut["kind"]])
    assert files and {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert {stat.S_IMODE(folder.stat().st_mode) for file in files for folder in (file.parent, *file.parents[:3])} == {
        0o700
    }
    secrets = [line.strip() for file in files for line in file.read_text().splitlines() if len(line) > 40]
    secrets = [line.rpartition('": "')[2].rstrip('",') for line in secrets if "public_key" not in line]
    everyone = sandbox.processes()
    run.process.send_signal(end)
    assert run.finish().code == (130 if end == signal.SIGINT else -signal.SIGKILL)
    await_end(everyone)
    report(sandbox.folders()[0])
    places = [*sandbox.folder.rglob("*"), *sandbox.scratch.rglob("*")]
    assert {"journal.ndjson", "report.html"} <= {path.name for path in places}
    texts = [path.read_bytes() for path in places if path.is_file()]
    assert secrets and not any(secret.encode() in text for secret in secrets for text in texts)
    assert not any(b"PRIVATE KEY" in text or b"private_key" in text for text in texts)
    cases = packed_cases((sandbox.folders()[0] / "report.html").read_text())
    assert cases and not any(secret in case for case in cases for secret in secrets)


def key_files(run: Run, pattern: str) -> list[Path]:
    """The files with keys of a run that runs, as the process inside of its jail sees them."""
    [inside] = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
    folder = next(run.sandbox.scratch.glob("leadline-*")) / "ns" / "keys"
    assert not folder.exists(), "they are in the jail's memory, and not on the disk"
    return sorted(Path(f"/proc/{inside}/root{folder}").rglob(pattern))
