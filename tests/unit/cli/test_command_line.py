"""A wrong request is one line on stderr: what is wrong, where, and what would be right; exit 2; nothing is made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import in_process

LEADLINE = Path(sys.executable).with_name("leadline")
PLAN = """\
name: small
topology: remote-access
lab: {link: {rate: 1gbit}}
axes:
  sut: [{kind: route}, {kind: wireguard}]
tests:
  - {name: load, kind: tcp, duration: 1s}
targets: ["load.throughput_bps > 1"]
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return path


def leadline(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, with a temp folder that it must leave empty."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    ended = in_process.leadline(*arguments, folder=folder, variables={"TMPDIR": str(scratch)})
    assert list(scratch.iterdir()) == []
    return ended


def error_text(folder: Path, *arguments: str) -> str:
    """The one line that a wrong request gets."""
    there = sorted(folder.iterdir())
    ended = leadline(folder, *arguments)
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    assert ended.stderr.startswith("leadline: ")
    assert ended.stderr.count("\n") == 1
    assert sorted(folder.iterdir()) in (there, sorted([*there, folder / "scratch"]))
    return ended.stderr.removeprefix("leadline: ").rstrip("\n")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("duration: 1s", "duratoin: 1s", "plan.yaml:7: unknown key 'duratoin' in tests.load; did you mean 'duration'?"),
        ("duration: 1s", "duration: -1s", "plan.yaml:7: tests.load.duration: '-1s' is negative; a duration is not"),
        ("rate: 1gbit", "rate: fast", "plan.yaml:3: lab.link.rate: 'fast' is not a rate"),
        ("kind: wireguard", "kind: wiregard", "unknown kind 'wiregard'; did you mean 'wireguard'?"),
        ("  sut: [", "  clints: [1]\n  sut: [", "plan.yaml:5: unknown axis 'clints'; did you mean 'clients'?"),
        ("load.thr", "laod.thr", "plan.yaml:8: target 'laod.throughput_bps > 1': unknown test 'laod'; did you mean"),
        ("tests:", "tests: [", "plan.yaml:7: "),
    ],
)
def test_wrong_plan_is_refused_by_run_and_plan(plan: Path, right: str, wrong: str, said: str) -> None:
    plan.write_text(PLAN.replace(right, wrong))
    assert said in error_text(plan.parent, "run", "plan.yaml")
    assert said in error_text(plan.parent, "plan", "plan.yaml")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "flow.yaml",
            "name: x\nflow: [{get: http://127.0.0.1/}]\n",
            "this is a scenario, not a plan; run it by `leadline scenario flow.yaml`",
        ),
        (
            "shop.jmx",
            "<?xml version='1.0'?><jmeterTestPlan/>",
            "this is XML, not a plan in YAML; run JMeter's plans by `leadline scenario",
        ),
    ],
)
def test_a_scenario_given_as_a_plan_is_refused_with_its_command(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    for command in ("run", "plan"):
        assert f"{name}: {said}" in error_text(tmp_path, command, name)


def test_every_mistake_of_a_plan_is_a_line_of_its_own(plan: Path) -> None:
    plan.write_text(PLAN.replace("duration: 1s", "duration: -1s").replace("kind: wireguard", "kind: wiregard"))
    ended = leadline(plan.parent, "plan", "plan.yaml", "--json")
    assert ended.returncode == 2
    lines = ended.stderr.splitlines()
    assert [line.split(": ")[1] for line in lines] == ["plan.yaml:5", "plan.yaml:7"]
    error = json.loads(ended.stdout)["error"]
    assert [f"leadline: {message}" for message in (error["message"], *error["others"])] == lines


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rnu"], "No such command 'rnu'. Did you mean 'run'?; see `leadline --help`"),
        (["run"], "Missing argument 'PLAN'; see `leadline run --help`"),
        (["run", "plan.yaml", "--jsn"], "No such option: --jsn (Possible options: --json"),
        (["run", "plan.yaml", "more"], "Got unexpected extra argument(s) (more)"),
        (["run", "none.yaml"], "none.yaml: there is no such file"),
        (["run", "."], ".: this is a folder, not a regular file"),
        (["run", "plan.yaml", "--set", "repeta=2"], "--set repeta=2: unknown key 'repeta'; did you mean 'repeat'?"),
        (["run", "plan.yaml", "--set", "axes.clints=[1]"], "unknown axis 'clints'; did you mean 'clients'?"),
        (["run", "plan.yaml", "--only", "c09"], "--only c09: neither a case, a test nor AXIS=VALUE"),
        (["run", "plan.yaml", "--only", "sut=rout"], "--only sut=rout: no case has sut 'rout'; there is route"),
        (["plan"], "the plan is missing; name its file, or give --example or --schema"),
        (["results", "none"], "no run at none; give the folder that `leadline run` printed"),
        (["report", "."], ". is not a run folder"),
        (["report", "n" * 300], "cannot be read: File name too long; give the folder that `leadline run` printed"),
        (["trend", "n" * 300], "cannot be read: File name too long; give the folder that holds the runs, as in `runs`"),
        (["run", "plan.yaml", "--out", "n" * 300], "File name too long; name"),
        (["scenario", "plan.yaml"], "plan.yaml: this is a plan, not a scenario; run it by `leadline run plan.yaml`"),
        (["tcp", "127.0.0.1", "--out", "plan.yaml"], "--out plan.yaml: plan.yaml is not a folder; name a folder that"),
        (["run", "plan.yaml", "--out", "plan.yaml/runs"], "plan.yaml is not a folder; name a folder that can be made"),
        (["ladder", "127.0.0.1", "--out", "plan.yaml"], "--out plan.yaml: plan.yaml is not a folder"),
        (["http", "http://127.0.0.1/", "--find-rate", "-d", "5s"], "--find-rate: its value is missing: -d is the next"),
        (["run", "plan.yaml", "--out", "--dry-run"], "--out: its value is missing: --dry-run is the next option; see"),
        (["tcp", "192.0.2.7", "198.51.100.7"], "unexpected extra argument"),
        (["tcp", "127.0.0.1", "-d", "soon"], "--duration: 'soon' is not a duration; write 10s, 500ms or 1m"),
        (
            ["tcp", "127.0.0.1", "-t", "10s"],
            "10s is a time; -t is threads; -d/--duration is the time; see `leadline tcp",
        ),
        (["tcp", "127.0.0.1", "-R", "--bidir"], "--reverse and --bidir exclude each other"),
        (["tcp", "127.0.0.1", "-p", "70000"], "--port: '70000' is not possible; at most 65535; see `leadline tcp"),
        (["tcp", "127.0.0.1", "-P", "0"], "--parallel: '0' is not possible; at least 1; see `leadline tcp --help`"),
        (["tcp", "127.0.0.1", "-P", "two"], "--parallel: 'two' is not a whole number; see `leadline tcp --help`"),
        (["tcp", "192.0.2.7:5201"], "HOST 192.0.2.7:5201: the port is an option; write 192.0.2.7 --port 5201"),
        (["rr", "[2001:db8::7]:5201"], "HOST [2001:db8::7]:5201: the port is an option; write 2001:db8::7 --port"),
        (["udp", "[2001:db8::7]"], "HOST [2001:db8::7]: an address has no brackets here; write 2001:db8::7"),
        (["tcp", ""], "HOST: it is empty; write a name or address, as in 192.0.2.7"),
        (["rr", "two hosts"], "HOST two hosts: this is no host; write its name or address alone"),
        (["ladder", ""], "HOST: it is empty"),
        (["ladder", "192.0.2.7", "--layers", ""], "--layers '': it names no layer; as in --layers udp,tcp"),
        (["ladder", "192.0.2.7", "--layers", " , "], "--layers ' , ': it names no layer"),
        (["ladder", "http://192.0.2.7/"], "HOST http://192.0.2.7/: this is no host; write its name or address alone"),
        (["serve", "--errors", "many"], "--errors: 'many' is not a number; see `leadline serve --help`"),
        (
            ["tcp", "127.0.0.1", "--cross-check", "wrk"],
            "--cross-check: 'wrk' is not one of 'iperf3'",
        ),
        (["tcp", "127.0.0.1", "--target", "throughputs > 1"], "unknown metric 'throughputs'"),
        (["http", "ftp://127.0.0.1/"], "ftp://127.0.0.1/ is not an http:// or https:// URL"),
        (["http", "http://127.0.0.1/", "--insecure"], "--insecure with an http:// URL; TLS is for https:// URLs"),
        (["http", "http://127.0.0.1/", "--rate", "1:2/3s", "-d", "3s"], "--duration: the rate's stages last 3 s"),
        (["http", "http://127.0.0.1/", "-H", "nonsense"], "--header 'nonsense' is not 'NAME: VALUE'"),
    ],
)
def test_wrong_command_line_is_refused_in_one_line(plan: Path, arguments: list[str], said: str) -> None:
    assert said in error_text(plan.parent, *arguments)


def test_no_command_shows_the_help(tmp_path: Path) -> None:
    ended = leadline(tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("Usage: leadline [OPTIONS] COMMAND")


@pytest.mark.parametrize("command", ["run", "plan", "http", "tcp", "udp", "rr", "serve", "results", "report", "doctor"])
def test_help_has_an_example(tmp_path: Path, command: str) -> None:
    ended = leadline(tmp_path, command, "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"Example: leadline {command}" in ended.stdout


def test_dry_run_prints_the_plan_and_measures_nothing(plan: Path) -> None:
    ended = leadline(plan.parent, "run", "plan.yaml", "--dry-run", "--only", "sut=route", "--set", "repeat=3")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "c01" in ended.stdout
    assert "c02" not in ended.stdout
    assert "3 trials" in ended.stdout
    ended = leadline(plan.parent, "run", "plan.yaml", "--dry-run", "--json")
    assert [case["id"] for case in json.loads(ended.stdout)["cases"]] == ["c01", "c02"]
    assert not (plan.parent / "runs").exists()


@pytest.mark.processes
@pytest.mark.parametrize("arguments", [("plan", "--schema"), ("size", "--cycles-per-byte", "140")])
def test_closed_pipe_ends_the_command_as_sigpipe_does(arguments: tuple[str, ...]) -> None:
    """`leadline plan --schema | head -1`: no traceback. The second one's output is drawn, and fits a buffer."""
    process = subprocess.Popen([LEADLINE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 141


def test_targets_on_the_command_line_take_the_place_of_the_plans(plan: Path, tmp_path: Path) -> None:
    shown = leadline(tmp_path, "run", str(plan), "--dry-run", "--target", "load.retransmits < 5")
    assert shown.returncode == 0, shown.stderr
    assert "targets: load.retransmits < 5" in shown.stdout
    assert "throughput_bps" not in shown.stdout
    wrong = leadline(tmp_path, "run", str(plan), "--dry-run", "--target", "load.latency_p99_us < 5")
    assert wrong.returncode == 2
    assert "unknown metric" in wrong.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ("tcp", "127.0.0.1", "-d", "soon", "--rate", "fast", "--interval", "1ms", "--width", "500%", "-4", "-6"),
            ("--duration: 'soon'", "--rate: 'fast'", "--interval: 1ms", "--width 500%", "--ipv4 and --ipv6"),
        ),
        (
            ("http", "http://127.0.0.1/", "-d", "soon", "--rate", "x", "--target", "a < 1", "--target", "b < 1"),
            ("--duration: 'soon'", "--rate: 'x'", "--target 'a < 1'", "--target 'b < 1'"),
        ),
        (
            ("udp", "127.0.0.1", "--rate", "1mbit", "--find-rate", "y < 1", "--interval", "1s", "--key-file", "/none"),
            ("--rate and --find-rate", "--find-rate and --interval", "--find-rate 'y < 1'", "--key-file /none"),
        ),
        (("ladder", "127.0.0.1", "-d", "soon", "--rate", "x", "-4", "-6"), ("--duration", "--rate", "--ipv4 and")),
    ],
)
def test_all_mistakes_in_options_are_named_at_once(command: tuple[str, ...], said: tuple[str, ...]) -> None:
    ended = in_process.leadline(*command)
    lines = ended.stderr.splitlines()
    assert ended.returncode == 2 and len(lines) == len(said), lines
    for line, words in zip(lines, said, strict=True):
        assert line.startswith(f"leadline: {words}"), lines
    document = json.loads(in_process.leadline(*command, "--json").stdout)["error"]
    assert len(document["others"]) == len(said) - 1


@pytest.mark.processes
@pytest.mark.parametrize("arguments", [("size", "--cycles-per-byte", "140"), ("trend", "none", "--json"), ("--help",)])
def test_full_disk_under_stdout_is_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen([LEADLINE, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        said_on_stderr = process.communicate()[1]
    is_refused = arguments[0] == "trend"
    said = "none is not a folder" if is_refused else "cannot write the output: No space left on device"
    (line,) = said_on_stderr.splitlines()
    assert line.startswith(f"leadline: {said}")
    assert process.returncode == (2 if is_refused else 1)


@pytest.mark.processes
def test_ctrl_c_while_the_commands_are_imported_prints_no_traceback() -> None:
    interrupted = "import sys, leadline.cli; from unittest import mock\n"
    interrupted += "with mock.patch('builtins.__import__', side_effect=KeyboardInterrupt): leadline.cli.main()"
    ended = subprocess.run([sys.executable, "-c", interrupted], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
