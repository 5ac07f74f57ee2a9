"""The server of a module's tests, which records what users send, and JMeter, whose users theirs are compared with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jmeter import JMeter, jmeter
from recording_server import RecordingServer, recording_server


@pytest.fixture(scope="module")
def server() -> Iterator[RecordingServer]:
    with recording_server() as running:
        yield running


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JMeter]:
    with jmeter(tmp_path_factory.mktemp("jmeter")) as running:
        yield running
