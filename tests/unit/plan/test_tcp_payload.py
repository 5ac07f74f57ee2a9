"""Payloads of a TCP test by name: what an agent sends for them, and what a name that is none says."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from leadline.kinds.tcp import TcpTest
from leadline.kinds.tcp_options import stream_options


def sent(payload: str) -> object:
    """What an agent receives as its payload."""
    test = TcpTest.model_validate({"name": "t", "kind": "tcp", "payload": payload})
    return stream_options(test, 1).model_dump(mode="json")["payload"]


def test_payload_has_the_compressibility_of_its_name() -> None:
    assert [sent(name) for name in ("zeros", "random", "compressed")] == ["zeros", "random", "random"]
    assert [sent(name) for name in ("uncompressed", "62%")] == [{"repeated": 62}, {"repeated": 62}]


@pytest.mark.parametrize("payload", ["much", "101%", "-1%", "Compressed"])
def test_payload_that_is_none_names_those_that_are(payload: str) -> None:
    with pytest.raises(ValidationError, match="zeros, random, compressed, uncompressed, or the share"):
        sent(payload)
