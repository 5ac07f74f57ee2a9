"""Rows of a VPN's protocol in memory, beside what OpenSSL says of the bare cipher on the same CPU."""

from __future__ import annotations

from collections.abc import Iterator

import agent
from programs import first_group, program, timed
from rows import Rounds, Row, at_least, compared

from leadline.contract.models import CryptoWorkload, Size

_BYTES = 1400
# What `openssl speed` goes over again and again fits the first cache; so does this nearly, and a packet is still
# written to another place than its payload's.
_SPREAD_BYTES = 16 * 1024


def sealing(rounds: Rounds) -> Iterator[Row]:
    """Whole packets sealed and opened, against the cipher alone: no packet id, no nonce, no tag, one buffer."""
    own: dict[str, list[float]] = {"seal": [], "open": []}
    theirs: list[float] = []
    for _ in range(rounds.count):
        for what, rate in ours(rounds.seconds).items():
            own[what].append(rate)
        theirs.append(_openssl(rounds.seconds))
    for what, bound in (("seal", at_least(0.75)), ("open", None)):
        yield compared(
            f"AES-256-GCM packets of {_BYTES} B, {what}",
            "MB/s",
            "openssl speed, the cipher alone",
            list(zip(own[what], theirs, strict=True)),
            bound=bound,
        )


def ours(seconds: int) -> dict[str, float]:
    """Payload per second of CPU time, MB/s."""
    workload = CryptoWorkload(
        ciphers=["AES-256-GCM"],
        digests=[],
        sizes=[Size(_BYTES)],
        duration_ms=seconds * 1000,
        handshakes=False,
        spread_bytes=_SPREAD_BYTES,
    )
    reports = agent.run(workload).outcome.crypto or []
    return {one.what: one.operations * _BYTES / one.cpu_ns * 1e3 for one in reports if one.what in ("seal", "open")}


def _openssl(seconds: int) -> float:
    """Bytes per second of CPU time, MB/s: its own clock is the user time that it took."""
    argv = [program("openssl"), "speed", "-mr", "-evp", "aes-256-gcm", "-bytes", str(_BYTES), "-seconds", str(seconds)]
    said, _ = timed(argv)
    return float(first_group(r"\+F:\d+:[^:]+:([\d.]+)", said)) / 1e6
