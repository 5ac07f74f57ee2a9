"""The options for an iperf3 server: what they ask for, and where they have no meaning."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.cli.iperf3_options import iperf3_options_of
from leadline.contract.models import Iperf3Options
from leadline.errors import InputError

NOTHING: dict[str, Any] = {
    "peer": "iperf3",
    "parallel": 1,
    "bidir": False,
    "local_port": None,
    "get_server_output": False,
    "repeating_payload": False,
}


def test_without_options_nothing_is_asked_for() -> None:
    assert iperf3_options_of(NOTHING) is None
    assert iperf3_options_of({"peer": "leadline"}) is None


def test_options_ask_an_iperf3_server() -> None:
    given = {**NOTHING, "local_port": 21_000, "get_server_output": True, "udp_counters_32bit": True}
    assert iperf3_options_of(given) == Iperf3Options(
        local_port=21_000, server_output=True, repeating_payload=False, short_counters=True
    )


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"peer": "leadline", "local_port": 5}, "--local-port is for iperf3's servers"),
        ({"peer": "leadline", "get_server_output": True}, "--get-server-output is for iperf3's servers"),
        ({"local_port": 65_534, "parallel": 2, "bidir": True}, "4 flows need 4 ports"),
        ({"repeating_payload": True, "payload": "50%"}, "exclude each other"),
        ({"repeating_payload": True, "payload_file": "x"}, "exclude each other"),
    ],
)
def test_option_without_meaning_is_refused(given: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        iperf3_options_of({**NOTHING, **given})


def test_last_ports_are_usable() -> None:
    found = iperf3_options_of({**NOTHING, "local_port": 65_532, "parallel": 2, "bidir": True})
    assert found is not None and found.local_port == 65_532
