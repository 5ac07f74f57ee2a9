"""Fleets of several sizes by the real agent, against a port without a listener: what a later one cannot do takes
nothing from those before it.
"""

from __future__ import annotations

import datetime
import json
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from in_process import leadline
from leadline.sut import pki

LEADLINE = str(Path(sys.executable).with_name("leadline"))
FILES = 256
"""Descriptors that the command may have: enough for a few clients and not for 400."""


@pytest.fixture
def profile(tmp_path: Path) -> Iterator[Path]:
    made = pki.issue(tmp_path, "server", ["client"], now=datetime.datetime.now(datetime.UTC))
    own = made.clients["client"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        # It is held and never read: attempts end by their timeout.
        held.bind(("127.0.0.1", 0))
        file = tmp_path / "client.ovpn"
        file.write_text(
            f"client\ndev tun\nremote 127.0.0.1 {held.getsockname()[1]} udp\nca {made.authority}\n"
            f"cert {own.certificate}\nkey {own.key}\n"
        )
        yield file


def call(profile: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["prlimit", f"--nofile={FILES}:{FILES}", LEADLINE, "tunnel", str(profile), "--attempt-timeout", "100ms"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] > FILES
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.agent
def test_results_are_kept_when_a_later_fleet_fails(profile: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    ended = call(profile, "-n", "2,3,400", "--json", "--out", out)
    assert ended.returncode == 2, ended.stderr
    assert "the fleet of 400 could not be measured" in ended.stderr and "ulimit -n" in ended.stderr
    document = json.loads(ended.stdout)
    assert [one["clients"] for one in document["fleets"]] == [2, 3]
    assert [one["metrics"]["failed"]["value"] for one in document["fleets"]] == [2, 3]
    assert "ulimit -n" in document["error"]
    [folder] = out.iterdir()
    last = json.loads((folder / "journal.ndjson").read_text().splitlines()[-1])
    assert (last["record"], last["status"]) == ("run-end", "failed")
    assert (folder / "report.html").exists()


@pytest.mark.agent
def test_results_are_kept_when_the_disk_is_full_at_the_end(
    profile: Path, fill_disk: Callable[[bytes], None], tmp_path: Path
) -> None:
    fill_disk(b'"run-end"')
    options = ("-n", "2,3", "--attempt-timeout", "100ms", "--json", "--out", tmp_path / "runs")
    ended = leadline("tunnel", profile, *options)
    assert ended.returncode == 1, ended.stderr
    document = json.loads(ended.stdout)
    assert [one["clients"] for one in document["fleets"]] == [2, 3]
    assert "no space left on the device" in document["error"]
    assert ended.stderr.count("no space left on the device") == 1


@pytest.mark.agent
def test_failed_first_fleet_is_one_error(profile: Path) -> None:
    ended = call(profile, "-n", "400,500", "--json")
    assert ended.returncode == 2
    assert json.loads(ended.stdout)["schema"] == "leadline.error/1"


@pytest.mark.parametrize("option", [["--retries", "2"], ["--ping", "1s"]])
def test_options_that_hide_an_overload_are_refused(profile: Path, option: list[str]) -> None:
    ended = leadline("tunnel", profile, "-n", "20", "--until-choke", *option)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"leadline: {option[0]} and --until-choke exclude each other")
    assert len(ended.stderr.splitlines()) == 1
