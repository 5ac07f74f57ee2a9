"""The options of a TCP test's sockets and payload: a plan's keys, the command's options, and an agent's terms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from leadline.plan.base_test import BaseTest
from leadline.plan.dscp import Dscp
from leadline.plan.field_types import RateBps, SizeBytes, rule, validation_error, within
from leadline.plan.options import Option, group

if TYPE_CHECKING:
    from leadline.contract.models import StreamOptions

_SHARE = re.compile(r"(\d{1,3})%")
_BY_NAME = {"compressed": "random", "uncompressed": "62%"}
"""Payloads that compress as files do: an archive not at all; a database of packages to less than two fifths of its
size, as IP compression made its transfer 2.66 times as fast."""


def _payload(value: str) -> str:
    share = _SHARE.fullmatch(value)
    if value in ("zeros", "random", *_BY_NAME) or (share and int(share[1]) <= 100):
        return value
    names = ", ".join(("zeros", "random", *_BY_NAME))
    raise ValueError(f"{value!r} is none: give {names}, or the share of repeated bytes as in 50%")


class TcpOptions(BaseTest):
    """The keys of a TCP test that set up its sockets and its payload."""

    pacing_bps: RateBps | None = Field(default=None, validation_alias="pacing")
    """Rate at which the senders' kernel paces the flows (SO_MAX_PACING_RATE), bits per second and client, shared evenly
    by its flows. Null: as the congestion control sees fit."""
    window_bytes: Annotated[SizeBytes, within(1024, 2**30, " bytes")] | None = Field(
        default=None, validation_alias="window"
    )
    """Size of the send and of the receive buffer on both ends (SO_SNDBUF, SO_RCVBUF). Null: the kernels size them."""
    mss_bytes: Annotated[SizeBytes, within(88, 32_767, " bytes")] | None = Field(default=None, validation_alias="mss")
    """Payload of the largest segment. Null: from the path's MTU."""
    nagle: bool = False
    """Whether Nagle's algorithm may hold back small segments."""
    dscp: Dscp | None = None
    """Code point of the packets of both ends: 0 to 63, or a class such as EF, CS1 or AF41. Null: the host's default."""
    mptcp: bool = False
    """Whether the flows are MPTCP connections; an error if a kernel on the path does not speak it."""
    payload: Annotated[str, AfterValidator(_payload)] = "zeros"
    """The bytes that are sent: zeros, random, or the share of repeated bytes in otherwise random ones (50%);
    `compressed` and `uncompressed` compress as files of these kinds do."""
    payload_file: str | None = None
    """File on the client's host whose bytes it sends again and again, instead of the payload; only upward."""
    send: Literal["write", "zerocopy", "sendfile"] = "write"
    """How bytes are sent: copied by the kernel, by MSG_ZEROCOPY, or from a file's pages (sendfile)."""
    receive: Literal["copy", "discard"] = "copy"
    """What receivers do: copy the bytes, as applications do, or let the kernel discard them (MSG_TRUNC)."""
    total_bytes: Annotated[SizeBytes, within(1, 2**50, " bytes")] | None = Field(default=None, validation_alias="bytes")
    """Payload of all flows of one direction, after which the test ends. Null: the duration alone ends it."""
    line_rate_bps: RateBps | None = Field(default=None, validation_alias="line_rate")
    """Rate of the line, for the share of it that is used. Null: that of the lab's links, or of the interface."""

    @rule
    def _mptcp_is_not_paced(self) -> Iterator[PydanticCustomError]:
        if self.mptcp and self.pacing_bps is not None:
            yield validation_error("no kernel paces MPTCP connections", at=("pacing",), hint="set rate instead")

    @rule
    def _file_goes_up(self) -> Iterator[PydanticCustomError]:
        if self.payload_file is not None and getattr(self, "direction", "up") != "up":
            yield validation_error(
                "only a client sends a file", at=("payload_file",), hint="leave out the direction, or use payload"
            )


def stream_options(test: TcpOptions, flows: int) -> StreamOptions:
    """The options in an agent's terms; each flow has an equal share of the pacing rate."""
    from leadline.contract.models import StreamOptions

    payload = _BY_NAME.get(test.payload, test.payload)
    share = _SHARE.fullmatch(payload)
    return StreamOptions.model_validate(
        {
            "pacing_bps": None if test.pacing_bps is None else max(8, round(test.pacing_bps / flows)),
            "window_bytes": test.window_bytes,
            "mss_bytes": test.mss_bytes,
            "nagle": test.nagle,
            "dscp": test.dscp,
            "mptcp": test.mptcp,
            "payload": {"repeated": int(share[1])} if share else payload,
            "send": test.send,
            "receive": test.receive,
            "total_bytes": test.total_bytes,
        }
    )


OPTIONS = (
    Option(
        ("-n", "--bytes"),
        "End after this payload of all flows of one direction: 1GiB. -d limits the time.",
        key="bytes",
    ),
    *group(
        "Sockets and payload",
        Option(("--pacing",), "Let the kernel pace all flows together at this rate: 50mbit.", key="pacing"),
        Option(
            ("-w", "--window"),
            "Size of the send and the receive buffer on both ends. Default: the kernels'.",
            key="window",
        ),
        Option(("--mss",), "Payload of the largest segment, bytes.", key="mss"),
        Option(("--nagle",), "Let Nagle's algorithm hold back small segments.", key="nagle"),
        Option(
            ("--dscp",),
            "Code point of both ends' packets: 0 to 63, or a class such as EF or CS1.",
            key="dscp",
            metavar="CLASS",
        ),
        Option(("--mptcp",), "Use MPTCP; an error if a kernel on the path has none.", key="mptcp"),
        Option(
            ("--payload",),
            "What is sent: zeros, random, compressed, uncompressed, or a share of repeated bytes as in 50%.",
            key="payload",
            metavar="WHAT",
        ),
        Option(
            ("--payload-file",),
            "File whose bytes are sent again and again instead.",
            key="payload_file",
            metavar="FILE",
        ),
        Option(("--send",), "How bytes are sent: copied, by MSG_ZEROCOPY, or from a file's pages.", key="send"),
        Option(("--receive",), "Copy received bytes, or let the kernel discard them (MSG_TRUNC).", key="receive"),
        Option(
            ("--line-rate",),
            "Rate of the line, for the share of it that is used. Default: the interface's speed.",
            key="line_rate",
        ),
    ),
)
