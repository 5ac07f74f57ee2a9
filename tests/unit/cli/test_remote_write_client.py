"""Remote write to a scripted receiver, in virtual time: what is sent again, after which pauses, and what is not."""

from __future__ import annotations

import email.message
import io
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import RemoteDisconnected
from typing import Any

import pytest

from leadline.cli import remote_write_client as client
from leadline.errors import LeadlineError

URL = "http://receiver.test/api/v1/write"


def refusal(code: int, text: str = "", **headers: str) -> urllib.error.HTTPError:
    """An answer of the receiver that is no success."""
    message = email.message.Message()
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    return urllib.error.HTTPError(URL, code, "", message, io.BytesIO(text.encode()))


@dataclass
class Receiver:
    """Takes a request where the script has None, and fails as the script says otherwise."""

    script: list[Exception | None]
    bodies: list[bytes] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def open(self, request: urllib.request.Request, timeout: float) -> Any:
        """As an opener of urllib does."""
        assert isinstance(request.data, bytes)
        self.bodies.append(request.data)
        failure = self.script.pop(0)
        if failure is not None:
            raise failure
        return io.BytesIO()

    def take(self, *bodies: bytes, retries: int = client.RETRIES) -> int:
        """Send these bodies to it."""
        return client.send(URL, bodies, {}, None, retries=retries, pause=self.pauses.append, on_retry=self.notes.append)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    receiver = Receiver([])
    monkeypatch.setattr(urllib.request, "build_opener", lambda *_: receiver)
    yield receiver
    assert receiver.script == [], "every answer was asked for"


def test_passing_failures_are_sent_again_and_pauses_double(scripted: Receiver) -> None:
    refused = urllib.error.URLError(ConnectionRefusedError(111, "Connection refused"))
    scripted.script = [None, refusal(503), refused, refusal(429), RemoteDisconnected("closed"), TimeoutError(), None]
    assert scripted.take(b"one", b"two") == 2
    assert scripted.bodies == [b"one", *[b"two"] * 6]
    assert scripted.pauses == [0.5, 1, 2, 4, 8]
    assert scripted.notes[0] == "the server answered 503; attempt 2 of 6 in 0.5 s"
    assert scripted.notes[1].startswith("cannot be reached: Connection refused; attempt 3 of 6")


def test_each_request_begins_with_the_shortest_pause(scripted: Receiver) -> None:
    scripted.script = [refusal(500), refusal(502), None, refusal(503), None]
    assert scripted.take(b"one", b"two") == 2
    assert scripted.pauses == [0.5, 1, 0.5]


@pytest.mark.parametrize("code", [301, 400, 401, 404, 409, 413, 422])
def test_refusals_for_good_are_not_sent_again(scripted: Receiver, code: int) -> None:
    scripted.script = [None, refusal(code, "out of\norder")]
    with pytest.raises(LeadlineError, match=f"the server answered {code}: out of order$"):
        scripted.take(b"one", b"two", b"three")
    assert scripted.pauses == [] and scripted.bodies == [b"one", b"two"]


def test_attempts_are_bounded(scripted: Receiver) -> None:
    scripted.script = [refusal(503, "starting") for _ in range(client.RETRIES + 1)]
    with pytest.raises(LeadlineError, match=r"the server answered 503: starting \(6 attempts\)$"):
        scripted.take(b"one")
    assert sum(scripted.pauses) == 15.5
    scripted.script = [refusal(503) for _ in range(12)]
    with pytest.raises(LeadlineError, match="12 attempts"):
        scripted.take(b"one", retries=11)
    assert max(scripted.pauses) == client.LONGEST_PAUSE_S


def test_no_retries_are_one_attempt(scripted: Receiver) -> None:
    scripted.script = [refusal(503)]
    with pytest.raises(LeadlineError, match=r"the server answered 503$"):
        scripted.take(b"one", retries=0)


@pytest.mark.parametrize(("asked", "pause_s"), [("7", 7), ("0", 0.5), ("3600", 60), ("soon", 0.5), ("9" * 400, 0.5)])
def test_pause_that_the_receiver_asks_for(scripted: Receiver, asked: str, pause_s: float) -> None:
    scripted.script = [refusal(429, Retry_After=asked), None]
    assert scripted.take(b"one") == 1
    assert scripted.pauses == [pause_s]


def test_name_that_does_not_exist_is_not_asked_for_again(scripted: Receiver) -> None:
    scripted.script = [urllib.error.URLError(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))]
    with pytest.raises(LeadlineError, match=r"cannot be reached: Name or service not known$"):
        scripted.take(b"one")
    scripted.script = [urllib.error.URLError(socket.gaierror(socket.EAI_AGAIN, "Temporary failure")), None]
    assert scripted.take(b"one") == 1 and scripted.pauses == [0.5]
