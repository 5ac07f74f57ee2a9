"""An iperf3 newer than Debian's, as client and as server: the one that `IPERF3` names, or that the benchmarks fetch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
import test_iperf3_clients as clients
import test_iperf3_ends as ends
import test_iperf3_errors as errors
import test_iperf3_login as login
import test_iperf3_parameters as sent
import test_iperf3_server as servers

sys.path.append(str(cli.ROOT / "bench"))
# Imported here, before the tests have a cache of their own: what was fetched once is found again.
import fetched
from programs import PeerMissing
from test_iperf3_login import Files, files

from waiting import free_port

__all__ = ["files"]

pytestmark = [pytest.mark.agent, pytest.mark.full_matrix, pytest.mark.takes(40)]

OLDEST = (3, 17)
PADDINGS = ((), (login.OLD_PADDING,))
"""OAEP, which is the default since then, and the older one."""
AT_ONCE = 4
CLIENTS = (*clients.UP, *clients.DOWN, *clients.DOWN_TIMED, *clients.BOTH, *clients.OMITTED)


@pytest.fixture(scope="module")
def newer() -> str:
    """The program."""
    try:
        program = fetched.iperf3()
    except PeerMissing as reason:
        pytest.skip(str(reason))
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"iperf (\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < OLDEST:
        pytest.skip(f"no iperf3 of 3.17 or newer could be built: {program} is {said.splitlines()[:1]}")
    return program


@pytest.fixture(scope="module")
def documents(newer: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The documents of its clients at our server, of which several run at once."""
    with_server = clients.serve(tmp_path_factory.mktemp("serve"))
    server = next(with_server)
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = pool.map(lambda options: clients.iperf3(server, options, newer), CLIENTS)
            return dict(zip(CLIENTS, found, strict=True))
    finally:
        with_server.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", CLIENTS)
def test_its_client_and_our_server_count_the_same_bytes(documents: dict[str, dict[str, Any]], options: str) -> None:
    document = documents[options]
    assert "error" not in document, document["error"]
    end = document["end"]
    for suffix in ("", "_bidir_reverse") if "--bidir" in options else ("",):
        sent, received = end[f"sum_sent{suffix}"]["bytes"], end[f"sum_received{suffix}"]["bytes"]
        if options in clients.OMITTED:
            clients.check_omitted(options, document)
        elif options in clients.DOWN_TIMED or suffix:  # what is under way at the end is not counted there
            assert 0 < received <= sent
        elif options in clients.DOWN:
            assert received == sent > 0
        else:  # since 3.16 a client cancels its sending threads, maybe between a block and its count
            asked = document["start"]["test_start"]
            assert sent > 0 and 0 <= received - sent <= asked["blksize"] * asked["num_streams"]


@pytest.fixture(scope="module")
def real(newer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.RealServer]:
    server = servers.RealServer(tmp_path_factory.mktemp("iperf3"), newer)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait()


@pytest.mark.parametrize("line", servers.CASES)
def test_our_client_and_its_server_count_the_same_bytes(
    real: servers.RealServer, quick_command: Path, line: str
) -> None:
    before = real.tests()
    options = ("--peer", "iperf3", "-d", servers.LENGTH, "--format", "iperf3-json")
    done = servers.leadline(str(quick_command), line, real.port, *options)
    assert done.returncode == 0, done.stderr
    real.waits_for_tests(before + 1)
    end = json.loads(done.stdout)["end"]
    for suffix in ("", "_bidir_reverse") if "--bidir" in line else ("",):
        sent, received = end[f"sum_sent{suffix}"], end[f"sum_received{suffix}"]
        missed = real.missed(line, sent["bytes"]) if not suffix else 0
        assert sent["bytes"] == received["bytes"] + missed * servers.datagram_bytes(line) > 0


@pytest.mark.parametrize("line", ends.OMITTED)
def test_its_server_omits_the_warm_up(newer: str, quick_command: Path, tmp_path: Path, line: str) -> None:
    ends.check_omitted(str(quick_command), line, tmp_path, newer)


@pytest.mark.parametrize("line", ends.COUNTED)
def test_bytes_or_datagrams_end_the_test_at_both_ends(
    newer: str, quick_command: Path, tmp_path: Path, line: str
) -> None:
    ends.check_counted(str(quick_command), line, tmp_path, newer)


@pytest.mark.parametrize("line", sent.SAME)
def test_our_parameters_are_those_of_its_client(newer: str, quick_command: Path, line: str) -> None:
    sent.check_same(quick_command, line, newer)


@pytest.mark.parametrize("number", errors.TEXTS)
def test_its_client_understands_our_errors(newer: str, number: int) -> None:
    errors.check_text(number, newer)


def test_its_client_logs_in_with_the_newer_padding(newer: str, files: Files, tmp_path: Path) -> None:
    for port in login.own_server(tmp_path / "log", *files.of_server()):
        done = login.real_client(port, *files.of_client(), program=newer)
        assert done.returncode == 0, done.stdout + done.stderr
        for refused in (
            login.real_client(port, program=newer),
            login.real_client(port, *files.of_client(), password="S3cret", program=newer),
        ):
            assert refused.returncode != 0 and "authorization failed" in refused.stdout + refused.stderr
    log = (tmp_path / "log").read_text()
    assert all(text in log for text in (f'user="{login.USER}"', "no login was sent", "password is wrong"))
    assert login.PASSWORD not in log


def test_server_of_the_older_padding_refuses_its_client(newer: str, files: Files, tmp_path: Path) -> None:
    """The option is for servers alone there: its clients have the newer padding."""
    for port in login.own_server(tmp_path / "log", *files.of_server(), login.OLD_PADDING):
        refused = login.real_client(port, *files.of_client(), program=newer)
        assert refused.returncode != 0 and "authorization failed" in refused.stdout + refused.stderr
    assert "cannot be decrypted" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("padding", PADDINGS, ids=("oaep", "pkcs1"))
def test_its_server_lets_its_users_in(newer: str, files: Files, quick_command: Path, padding: tuple[str, ...]) -> None:
    login.check_real_server(files, quick_command, newer, *padding, server_padding=padding)


def test_its_server_says_that_a_test_is_too_long(newer: str, quick_command: Path) -> None:
    port = free_port()
    argv = [newer, "-s", "-p", str(port), "--forceflush", "--server-max-duration", "1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            while "Server listening" not in process.stdout.readline():
                assert process.poll() is None
            done = login.own_client(quick_command, port, "-d", "5s")
        finally:
            process.terminate()
    assert done.returncode == 1 and "longer than the server allows" in done.stderr, done.stderr
