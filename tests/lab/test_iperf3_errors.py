"""The error numbers of `leadline serve` as a real iperf3 client understands them: each has the text that was meant."""

from __future__ import annotations

import json
import re
import shutil
import socket
import struct
import subprocess
from pathlib import Path

import pytest
import test_iperf3_clients as clients

from waiting import WITHIN_S

pytestmark = [
    pytest.mark.agent,
    pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed"),
]

SOURCE = Path(__file__).parents[2] / "crates/transport/src/iperf3/errors.rs"
TEXTS = {
    5: "test duration",
    6: "number of parallel streams",
    7: "block size too large",
    8: "socket buffer size too large",
    10: "TCP MSS too large",
    12: "bogus value for --omit",
    15: "invalid burst count",
    20: "block size invalid",
    21: "bad TOS value",
    25: "cannot be both reverse and bidirectional",
    27: "total required bandwidth is larger than server limit",
    104: "unable to accept connection from client",
    110: "received an unknown control message",
    114: "unable to receive parameters from client",
    117: "unable to receive results",
    124: "unable to set socket buffer size",
    125: "unable to set IP TOS",
    131: "protocol does not exist",
    132: "unable to set CPU affinity",
    134: "unable to set TCP_CONGESTION",
    140: "unable to set socket pacing",
    142: "test authorization failed",
    144: "idle timeout for receiving data",
    145: "unable to set IP Do-Not-Fragment flag",
    200: "unable to create a new stream",
    204: "unable to accept stream connection",
}


def test_every_number_that_the_server_sends_is_in_the_table() -> None:
    assert {int(number) for number in re.findall(r"^    \w+ = (\d+),$", SOURCE.read_text(), re.MULTILINE)} == {*TEXTS}


@pytest.mark.parametrize("number", TEXTS)
def test_a_real_client_understands_a_number(number: int) -> None:
    check_text(number, "iperf3")


def check_text(number: int, program: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        argv = [program, "-J", "-c", "127.0.0.1", "-p", str(listener.getsockname()[1])]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as client:
            control, _ = listener.accept()
            with control:
                assert len(clients.received(control, len(clients.COOKIE))) == len(clients.COOKIE)
                control.sendall(b"\xfe" + struct.pack(">ii", number, 22))
                said, _ = client.communicate(timeout=WITHIN_S)
    assert TEXTS[number] in json.loads(said)["error"]
