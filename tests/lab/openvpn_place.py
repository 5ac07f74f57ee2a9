"""What the tests against real OpenVPN servers share: a jail for a module's servers, and their keys."""

from __future__ import annotations

from collections.abc import Iterator

import cli_runs as cli
import openvpn_keys
import openvpn_servers as servers
import pytest


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Inside]:
    cli.skip_unless_possible()
    openvpn_keys.openvpn()
    with servers.inside(tmp_path_factory.mktemp("tunnels")) as jail:
        yield jail


@pytest.fixture(scope="module")
def keys(place: servers.Inside) -> openvpn_keys.Keys:
    return openvpn_keys.Keys.make(place.folder)
