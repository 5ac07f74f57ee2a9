"""What `doctor` and `plan` say of this host: needed for what, and how to mend it; the clock's words agree with its
figures.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from in_process import leadline
from leadline.agents import devices, kernel_support, programs
from leadline.agents.devices import DeviceProblem
from leadline.cli import host_checks
from leadline.cli.host_checks import Check, capability_check, clock_check, is_here
from leadline.cli.run import _check_programs as check_programs
from leadline.contract.models import Capability, ClockQuality
from leadline.errors import MissingBinary, MissingKernelFeature
from leadline.plan import Need, load_plan

PLAN = """\
name: delayed
lab: {emulator: netem, link: {delay: 5ms, rate: 10mbit, loss: 1%}}
sut: {kind: openvpn, binary: no-such-openvpn}
tests: [{name: load, kind: tcp, duration: 1}]
"""


@pytest.mark.agent
def test_doctor_names_each_check_with_its_use_and_its_remedy() -> None:
    ended = leadline("doctor", "--json")
    assert ended.returncode == 0, ended.stderr
    found = {one["what"]: one for one in json.loads(ended.stdout)["findings"]}
    assert {
        *("lab", "user namespaces", "netem", "tbf", "nftables", "openvpn", "ssh", "perf", "open files"),
        *("wrk", "ab", "h2load", "iperf3"),
        *("CPU governor", "synchronised clock", "tun", "io_uring"),
    } <= set(found)
    assert all(one["needed_for"] for one in found.values())
    assert all(one["why"] for one in found.values() if one["works"] is None)
    assert all(one["mend"] for one in found.values() if one["works"] is False)


@pytest.mark.agent
@pytest.mark.usefixtures("no_temporary_folder")
def test_lab_without_a_temporary_folder_is_a_no_with_its_reason() -> None:
    ended = leadline("doctor", "--json")
    assert ended.returncode == 0, ended.stderr
    (lab,) = [one for one in json.loads(ended.stdout)["findings"] if one["what"] == "lab"]
    assert lab["works"] is False
    assert lab["why"].endswith("cannot be written: No usable temporary directory found in ['/tmp']")
    assert lab["mend"].startswith("set TMPDIR")


def test_program_in_a_folder_of_daemons_is_found_without_it_in_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user's OpenVPN on Debian."""
    program = tmp_path / "sbin" / "openvpn"
    monkeypatch.setattr(programs, "DAEMON_FOLDERS", str(program.parent))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LEADLINE_AGENT", sys.executable)
    (tmp_path / "plan.yaml").write_text(PLAN.replace("no-such-openvpn", "openvpn"))
    cases = load_plan(tmp_path / "plan.yaml").cases
    with pytest.raises(MissingBinary, match="openvpn is not installed"):
        check_programs(cases)
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    check_programs(cases)
    (by_doctor,) = [one for one in host_checks.program_checks() if one.what == "openvpn"]
    by_plan = is_here(Need("program", "openvpn", "the system under test"), {})
    assert [(one.works, one.why) for one in (by_doctor, by_plan)] == [(True, str(program))] * 2


def test_missing_program_is_refused_with_the_command_that_installs_it(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        "name: a\nsut: {kind: strongswan, binary: no-charon}\ntests: [{name: rr, kind: rr}]\n"
    )
    with pytest.raises(MissingBinary) as missing:
        check_programs(load_plan(tmp_path / "plan.yaml").cases)
    said = str(missing.value)
    assert said.startswith("no-charon is not installed or not executable; the system under test is strongSwan; apt-get")


@pytest.mark.parametrize("system", ["{kind: libreswan, folder: /bin}", "{kind: strongswan, data_plane: kernel}"])
def test_kernel_without_esp_is_refused_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    monkeypatch.setattr(kernel_support, "attempt_here", lambda feature: kernel_support.Attempt(False, "not found"))
    monkeypatch.setattr("leadline.agents.programs.program_path", lambda name: f"/bin/{name}")
    plan = f"name: a\nsut: {system}\ntests: [{{name: rr, kind: rr}}]\n"
    (tmp_path / "plan.yaml").write_text(plan)
    with pytest.raises(MissingKernelFeature, match=r"ESP in the kernel is missing \(not found\); .* leaves its"):
        check_programs(load_plan(tmp_path / "plan.yaml").cases)
    (tmp_path / "plan.yaml").write_text(plan.replace("}\ntests", ", optional: true}\ntests"))
    check_programs(load_plan(tmp_path / "plan.yaml").cases)


@pytest.mark.agent
def test_kernel_features_are_tried_by_doctor_and_by_plans_that_need_them(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("name: esp\nsut: {kind: libreswan}\ntests: [{name: rr, kind: rr}]\n")
    ended = leadline("plan", "plan.yaml", "--json", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    [need] = [one for one in json.loads(ended.stdout)["needs"] if one["name"] == "ESP in the kernel"]
    [check] = [one for one in host_checks.kernel_checks() if one.what == "ESP in the kernel"]
    assert need["here"] is check.works
    assert check.works or (check.why and check.mend)


@pytest.mark.agent
def test_a_plan_says_of_each_need_whether_it_is_here(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    ended = leadline("plan", "plan.yaml", "--json", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    needs = {one["name"]: one for one in json.loads(ended.stdout)["needs"]}
    assert {"leadline-agent", "root or user namespaces", "netem", "tbf", "nftables", "no-such-openvpn"} <= set(needs)
    assert needs["leadline-agent"]["here"] is True
    assert (needs["no-such-openvpn"]["here"], needs["no-such-openvpn"]["mend"]) == (False, "install it")
    doctor = leadline("doctor", "--json")
    found = {one["what"]: one["works"] for one in json.loads(doctor.stdout)["findings"]}
    assert {name: needs[name]["here"] for name in ("netem", "tbf", "nftables")} == {
        name: found[name] for name in ("netem", "tbf", "nftables")
    }


@pytest.mark.parametrize(
    ("clock", "works", "said"),
    [
        (ClockQuality(synchronised=True, max_error_us=2500, source="tsc"), True, "at most 2.5 ms off"),
        (ClockQuality(synchronised=True), True, "its error is unknown"),
        (
            ClockQuality(synchronised=False, max_error_us=16_000_000),
            False,
            "the error of the time of day is unknown",
        ),
        (ClockQuality(synchronised=False), False, "the error of the time of day is unknown"),
        (ClockQuality(synchronised=False, max_error_us=750_000), False, "up to 0.75 s off, and drifts"),
    ],
)
def test_a_clock_that_nothing_disciplines_has_no_known_error(clock: ClockQuality, works: bool, said: str) -> None:
    check = clock_check(clock)
    assert check.works is works
    assert check.why is not None
    assert said in check.why
    assert "16 s" not in check.why
    assert check.mend is not None and check.mend.startswith("sudo timedatectl set-ntp true")


def test_kernel_check_reports_what_trying_it_found() -> None:
    lab = {"netem": Check("netem", False, "delays", "links cannot have a delay", "sudo modprobe sch_netem")}
    assert is_here(Need("kernel", "netem", "lab.link.delay delays packets"), lab) is lab["netem"]


def test_device_that_rights_forbid_is_not_mended_by_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = DeviceProblem(
        "the rights of /dev/net/tun forbid it: crw------- root root", "sudo chmod 0666 /dev/net/tun"
    )
    monkeypatch.setattr(devices, "device_problem", lambda _: problem)
    by_agent = capability_check(Capability(name="tun", available=False, reason="/dev/net/tun: permission denied"))
    by_plan = is_here(Need("device", "/dev/net/tun", "a tunnel"), {})
    for check in (by_agent, by_plan):
        assert (check.works, check.why, check.mend) == (False, problem.why, problem.mend)


def test_io_uring_that_is_switched_off_names_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_checks, "_number", {"/proc/sys/kernel/io_uring_disabled": 2}.get)
    check = capability_check(Capability(name="io_uring", available=False, reason="it is refused"))
    assert (check.works, check.mend) == (False, "sudo sysctl -w kernel.io_uring_disabled=0")


def test_missing_library_for_tables_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    (check,) = [one for one in host_checks.host_checks() if one.what == "parquet tables"]
    assert check.works is True
    monkeypatch.setitem(sys.modules, "polars", None)
    (check,) = [one for one in host_checks.host_checks() if one.what == "parquet tables"]
    assert (check.works, check.mend) == (False, "pip install polars")


@pytest.mark.parametrize(("governors", "works"), [({"performance"}, True), ({"powersave", "performance"}, False)])
def test_a_governor_that_changes_the_clock_is_named(
    monkeypatch: pytest.MonkeyPatch, governors: set[str], works: bool
) -> None:
    left = sorted(governors)
    monkeypatch.setattr(Path, "glob", lambda _self, _pattern: [Path(str(number)) for number in range(len(left))])
    monkeypatch.setattr(host_checks, "_text", lambda path: left[int(str(path))])
    (check,) = [one for one in host_checks.host_checks() if one.what == "CPU governor"]
    assert (check.works, check.why) == (works, ", ".join(left))
