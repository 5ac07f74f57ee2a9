"""`leadline fleet` before it meets a provider: what is wrong with the command line, and what is not installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from in_process import leadline

UP = ("fleet", "up", "--provider", "aws", "--count", "2", "--type", "m7i.large", "--yes")
OUT = ("--out", "/dev/null")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fleet",), "Missing command; see `leadline fleet --help`"),
        (("fleet", "up"), "Missing option '--provider'"),
        (("fleet", "list", "--provider", "gce"), "'gce' is not one of 'aws', 'openstack'"),
        ((*UP, "--count", "0"), "--count: "),
        ((*UP, "--count", "501"), "--count: "),
        ((*UP, "--ttl", "9m59s"), "--ttl: 9m59s is not in its limits; 10 min to 168 h"),
        ((*UP, "--ttl", "169h"), "--ttl: 169h is not in its limits; 10 min to 168 h"),
        ((*UP, "--ttl", "long"), "--ttl: 'long' is not a"),
        ((*UP, "--wait", "-1s"), "--wait: "),
        ((*UP, "--from", "198.51.100.7/24"), "--from: 198.51.100.7/24 has host bits set; write an IPv4 network"),
        ((*UP, "--from", "2001:db8::/32"), "; write an IPv4 network, as 198.51.100.7/32"),
        ((*UP, "--name", "Lab"), "'Lab' cannot be the name of a fleet; 1 to 40 small letters, digits and hyphens"),
        (UP[:-1], "asks before it creates machines, and there is no terminal; add --yes"),
        (("fleet", "down", "--provider", "aws"), "name one fleet, or --all-expired"),
        (("fleet", "down", "lab", "--all-expired", "--provider", "aws"), "name one fleet, or --all-expired"),
        (("fleet", "down", "Lab", "--provider", "aws"), "cannot be the name of a fleet"),
    ],
)
def test_bad_command_line_is_refused_in_one_line(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    ended = leadline(*words, *(OUT if words[1:2] == ("up",) else ()), folder=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert message in ended.stderr


@pytest.mark.skipif(importlib.util.find_spec("libcloud") is not None, reason="libcloud is installed")
@pytest.mark.parametrize("words", [(*UP, *OUT), ("fleet", "list", "--provider", "openstack")])
def test_missing_extra_is_named_with_what_installs_it(words: tuple[str, ...]) -> None:
    ended = leadline(*words, "--json")
    assert ended.returncode == 2
    assert ended.stderr == "leadline: leadline fleet needs the extra: pip install 'leadline[cloud]'\n"
    assert json.loads(ended.stdout)["error"]["code"] == "bad_input"
