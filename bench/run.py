"""Leadline beside its peers, pairwise in one run: `make bench`. Prints ratios and writes docs/benchmarks.md.

Every comparison alternates ours and theirs on the same two CPUs, generator on one and server on the other, and takes
the median of the ratios of neighbouring rounds, so that a machine that slows down slows both. Absolute figures are this
machine's; only the ratios mean something elsewhere.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import peers
from environment import describe_machine, versions

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


@dataclass(frozen=True, slots=True)
class Row:
    """One bound or comparison."""

    what: str
    ours: str
    theirs: str
    ratio: float | None
    bound: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours against theirs: a figure each per round, in one unit."""

    what: str
    unit: str
    peer: str
    ours: Callable[[], float]
    theirs: Callable[[], float]
    bound: float | None
    at_most: bool

    def row(self, rounds: int) -> Row:
        """Alternate, and compare neighbours."""
        pairs = [(self.ours(), self.theirs()) for _ in range(rounds)]
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
        return Row(
            self.what,
            f"{ours:.4g} {self.unit}",
            f"{self.peer}: {theirs:.4g} {self.unit}",
            ratio,
            "" if self.bound is None else f"{'at most' if self.at_most else 'at least'} {self.bound:g}",
            None if self.bound is None else (ratio <= self.bound if self.at_most else ratio >= self.bound),
        )


def main() -> int:
    """Run every row that this machine can, say what is left out, and write the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds per comparison; the ratio is their median")
    rounds: int = parser.parse_args().rounds
    rows: list[Row] = []
    left_out: list[str] = []
    for make in (_tcp, _udp, _http_wrk, _http_ab, _observing, _link):
        try:
            row = make(rounds)
        except peers.PeerMissing as missing:
            left_out.append(str(missing))
            continue
        rows.append(row)
        print(_line(row), flush=True)
    DOCUMENT.write_text(_document(rows, left_out, rounds), encoding="utf-8")
    print(f"written to {DOCUMENT.name}", file=sys.stderr)
    return 1 if any(row.holds is False for row in rows) else 0


def _tcp(rounds: int) -> Row:
    with peers.iperf3_server() as theirs, peers.leadline_server() as ours:
        return Comparison(
            "TCP, one flow over loopback, throughput",
            "Gbit/s",
            "iperf3",
            lambda: peers.leadline_tcp(ours),
            lambda: peers.iperf3_tcp(theirs),
            None,
            at_most=False,
        ).row(rounds)


def _udp(rounds: int) -> Row:
    with peers.iperf3_server() as theirs, peers.leadline_server() as ours:
        return Comparison(
            "UDP, 1400 B as fast as it goes, received",
            "kpackets/s",
            "iperf3",
            lambda: peers.leadline_udp(ours),
            lambda: peers.iperf3_udp(theirs),
            None,
            at_most=False,
        ).row(rounds)


def _http_wrk(rounds: int) -> Row:
    with peers.nginx() as url:
        return Comparison(
            "HTTP, 50 connections on nginx, generator's CPU per request",
            "µs",
            "wrk",
            lambda: peers.leadline_http(url),
            lambda: peers.wrk(url),
            None,
            at_most=True,
        ).row(rounds)


def _http_ab(rounds: int) -> Row:
    with peers.nginx() as url:
        return Comparison(
            "HTTP, 50 connections on nginx, generator's CPU per request",
            "µs",
            "ab -k",
            lambda: peers.leadline_http(url),
            lambda: peers.ab(url),
            None,
            at_most=True,
        ).row(rounds)


def _observing(rounds: int) -> Row:
    share = statistics.median(peers.observer_share() for _ in range(rounds))
    return Row(
        "observing one host 10 times a second", f"{share * 100:.2g} % of a core", "", None, "under 1 %", share < 0.01
    )


def _link(rounds: int) -> Row:
    share = statistics.median(peers.shaped_goodput_share() for _ in range(max(1, rounds // 2)))
    return Row(
        "TCP goodput of a link of 100 Mbit/s against what its headers leave",
        f"{share:.4f}",
        "1448/1514 of the rate",
        share,
        "0.98 to 1.02",
        abs(share - 1) <= 0.02,
    )


def _line(row: Row) -> str:
    ratio = "" if row.ratio is None else f"  ratio {row.ratio:.2f}"
    verdict = "" if row.holds is None else ("  holds" if row.holds else "  MISSED")
    bound = f"  ({row.bound})" if row.bound else ""
    return f"{row.what}: {row.ours}" + (f"  {row.theirs}" if row.theirs else "") + ratio + bound + verdict


def _document(rows: list[Row], left_out: list[str], rounds: int) -> str:
    table = [
        "| What | Leadline | Peer | Ratio | Bound |",
        "|---|---|---|---|---|",
        *(
            f"| {row.what} | {row.ours} | {row.theirs} | {'' if row.ratio is None else f'{row.ratio:.2f}'} "
            f"| {row.bound}{'' if row.holds is None else ', holds' if row.holds else ', **missed**'} |"
            for row in rows
        ),
    ]
    missing = ["", "Left out: " + "; ".join(left_out) + "."] if left_out else []
    return "\n".join(
        [
            "# Benchmarks",
            "",
            "Written by `make bench`. Ours and theirs alternate on the same two CPUs, the generator on one and",
            f"the server on the other; a ratio is the median over {rounds} rounds of ours by theirs in the same round.",
            "Absolute figures are this machine's; the ratios are what to compare.",
            "",
            f"- machine: {describe_machine()}",
            *(f"- {line}" for line in versions()),
            "",
            *table,
            *missing,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
