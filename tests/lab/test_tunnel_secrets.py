"""Private keys and passwords appear in nothing that `leadline tunnel` says or leaves, nor in what the system tells of
its processes: its text and JSON, the journal, tables and reports, command lines, the temporary folder, the agent's
log at its most detailed level.
"""

from __future__ import annotations

import re
from pathlib import Path

import openvpn_servers as servers
import pytest
from openvpn_keys import WRAPS, Keys
from openvpn_servers import Fleet, Inside, Setting

from report_page import packed_cases

pytestmark = pytest.mark.lab

GUESSED = "guessed-secret"
BLOCKS = ("ca", "cert", "key", "tls-auth", "tls-crypt", "tls-crypt-v2")
"""Options whose file may stand in the profile itself."""


@pytest.fixture(autouse=True)
def _everything_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADLINE_LOG", "trace,boringtun=trace")


@pytest.mark.parametrize(
    "wrap",
    # The profiles of the test below hold the keys of the others.
    [wrap if wrap in ("none", "tls-crypt-v2") else pytest.param(wrap, marks=pytest.mark.full_matrix) for wrap in WRAPS],
)
def test_secrets_are_in_no_output(place: Inside, keys: Keys, tmp_path: Path, wrap: str) -> None:
    """Of a fleet that comes up, of one that is refused, and of one whose profile is wrong."""
    given = tmp_path / "users"
    given.write_text(f"anna:{servers.PASSWORD}\nanna:{GUESSED}\n")
    with servers.server(place, keys, Setting(wrap=wrap), users=["anna"]) as server:
        profile = server.profile(f"secret-{wrap}", "auth-user-pass", identity=keys.client)
        mixed = servers.fleet(place, profile, "-n", "2", "--users", given)
        assert mixed.states == {"configured": 1, "failed": 1}, mixed.err
        issued = servers.fleet(place, profile, "-n", "1", "--users", given, *servers.issued(server))
        assert issued.states == {"configured": 1}, issued.err
        # The password is in the profile, which has an unknown option.
        inline = f"<auth-user-pass>\nanna\n{servers.PASSWORD}\n</auth-user-pass>\nfrobnicate 3\n"
        profile.write_text(profile.read_text().replace("auth-user-pass\n", inline))
        wrong = servers.fleet(place, profile, "-n", "1")
        assert wrong.code == 2 and wrong.err.count("\n") == 1, wrong.err
        for fleet in (mixed, issued, wrong):
            prove_silent(keys, fleet)


@pytest.mark.parametrize(
    "wrap", [pytest.param(wrap, marks=pytest.mark.full_matrix) if wrap == "none" else wrap for wrap in WRAPS]
)
def test_secrets_in_a_profile_are_in_no_text_and_in_no_command_line(
    place: Inside, keys: Keys, tmp_path: Path, wrap: str
) -> None:
    """Everything stands in the profile; once its own certificate is used, and once each client's is made on the fly."""
    with servers.server(place, keys, Setting(wrap=wrap), users=["anna"]) as server:
        user = f"<auth-user-pass>\nanna\n{servers.PASSWORD}\n</auth-user-pass>"
        profile = server.profile(f"inline-{wrap}", user, identity=keys.client)
        profile.write_text(as_blocks(profile.read_text()))
        assert "PRIVATE KEY" in profile.read_text() and str(keys.folder) not in profile.read_text()
        for number, who in enumerate(((), servers.issued(server))):
            temporary = tmp_path / str(number)
            temporary.mkdir()
            stay = ("-n", "2", "--ping", "100ms", *servers.STAY)
            running = servers.start_fleet(place, profile, *stay, *who, as_json=False, temporary=temporary)
            lines: set[str] = set()
            while running.standing()["configured"] < 2:
                lines |= command_lines()
                assert running.is_running(0.05), running.finish().err
            # However seldom it has been looked: its agent runs until it is interrupted.
            lines |= command_lines()
            fleet = running.interrupt()
            assert re.search(r"2 configured", fleet.out), fleet.out + fleet.err
            assert [line for line in lines if "leadline-agent" in line and str(profile) not in line]
            assert found_in(keys, *(line.encode() for line in lines)) == []
            assert found_in(keys, *contents(temporary)) == []
            prove_silent(keys, fleet)


def prove_silent(keys: Keys, fleet: Fleet) -> None:
    """What it said and left tells no secret."""
    left = contents(fleet.folder)
    names = {path.name for path in fleet.folder.rglob("*")}
    if fleet.code != 2:
        assert {"journal.ndjson", "report.html", "agent-this-host.log"} <= names
        assert any(b"VPN client changes its phase" in text for text in left)
    assert found_in(keys, fleet.out.encode(), fleet.err.encode(), *left) == []


def found_in(keys: Keys, *texts: bytes) -> list[str]:
    """Secrets that are in these."""
    files = ("static.key", "v2-client.key", "client.key", "authority.key")
    lines = [line for name in files for line in (keys.folder / name).read_text().splitlines()]
    private = [line for line in lines if len(line) > 20 and not line.startswith(("#", "-"))]
    secrets = [servers.PASSWORD, GUESSED, "PRIVATE KEY", "Static key", *private]
    return [secret for secret in secrets if any(secret.encode() in text for text in texts)]


def contents(folder: Path) -> list[bytes]:
    """Of every file in it, and of the cases that its pages pack."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    pages = [path.read_text() for path in files if path.suffix == ".html"]
    return [
        *(path.read_bytes() for path in files),
        *(case.encode() for page in pages for case in packed_cases(page)),
    ]


def command_lines() -> set[str]:
    """Of every process that runs."""
    lines = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has just ended
    return lines


def as_blocks(profile: str) -> str:
    """A profile with the contents of its files in it."""
    lines = []
    for line in profile.splitlines():
        name, *given = line.split()
        if name not in BLOCKS or not given:
            lines.append(line)
            continue
        # A direction stands on a line of its own beside a block.
        lines += [f"key-direction {direction}" for direction in given[1:]]
        lines += [f"<{name}>", Path(given[0]).read_text().rstrip("\n"), f"</{name}>"]
    return "\n".join(lines) + "\n"
