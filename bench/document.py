"""Writes docs/benchmarks.md from the rows, with the machine, reading instructions, and omitted rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import conditions
from conditions import Conditions
from environment import describe_machine, versions
from rows import Rounds, Row, table

NOTES = Path(__file__).with_name("notes.md")
"""Results of counts and profiles, maintained by hand."""


@dataclass(slots=True)
class Results:
    """What came of a run of the bench so far."""

    rounds: Rounds
    rows: list[Row] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Rows that did not run, and why."""
    conditions: list[Conditions] = field(default_factory=list)


_HOW = """\
Written by `make bench`. Leadline and its peers alternate on the same two CPUs, the generator on one and the server on
the other. A ratio is the median over {count} rounds of {seconds} s; each round divides Leadline's figure by the peer's
figure of the same round; the least and the greatest of them are given beside it. Absolute figures depend on this
machine; compare the ratios.

- **CPU per request** is the user and system time of the generator's whole process, from its start to its end, divided
  by its requests; for Leadline that process is the agent. The generating thread's own time is given beside it.
- **HTTP** is 50 connections that stay open, one generating thread, and a body of 12 bytes, from an nginx of one worker
  or from `leadline serve --http`, the null responder.
- Over loopback the sender's CPU also carries the packet into the receiver's socket, for every tool: no generator can
  change that part of a ratio. **The bare loop** (`bench/bare.c`) waits, receives and sends, and does nothing else: its
  cost is the kernel's, and its ratio to a peer is about the lowest that a generator can reach.
- **Scenarios** are the files of `bench/scenarios`, the same session for every tool, by 50 users. A peer is measured
  from some seconds after its first request (JMeter 4, k6 and Locust 1): CPU time of its processes, and the requests
  that the server counted. Its start and the compiling of its code do not count. For Leadline start and end count.
- **Scripts** are those of `crates/wrk-lua/tests/scripts`, the same file for both tools.
- **Handshakes** are full ones on both sides: the server resumes no session.
- **Packets** are sealed and opened in memory by one thread, over 16 KiB, by its CPU time; `openssl speed` encrypts one
  buffer repeatedly with one key and nonce, and computes no tag. Ratios are of rates.
- **Datagrams** cross a veth pair between two network namespaces, as fast as they go, or at a rate. They are counted by
  the receiver; those of a rate are watched as they arrive at its interface (`bench/bursts.c`), in any millisecond.
- **Request-response** is one connection over a veth pair between two network namespaces, one byte each way.
  `bench/pingpong.c` waits, receives and sends on both ends, and does nothing else.
- **TCP streams** are one flow over such a pair. CPU per byte is that of the moving threads (Leadline) or of the process
  (iperf3, by its own account), which both leave out the kernel's work in soft interrupts; the service demand is that of
  the whole machine, on which both ends are, by netperf's unit. At their best are
  Leadline with `--receive discard` and iperf3 with `-Z`; over a veth other flags of both move bytes at a higher cost.
- **Lateness** is compared with a bare schedule (`bench/wake.c`): a thread that wakes for each due instant on the same
  CPU, is busy for 20 µs, and sends nothing, while another thread keeps the server's CPU as busy as the server does.
  The machine and its host cause the lateness of the bare schedule.
- **Memory** is the agent's peak resident memory; its sockets' memory belongs to the kernel and is not included.
- **Report** is `leadline report` from the journal, on all CPUs, with tables and page. The journal is made of a short
  run of this machine, its lines shifted in time and renamed (`bench/made_journal.py`).
"""


def document(results: Results) -> str:
    """Return the text of docs/benchmarks.md."""
    return "\n".join(
        [
            "# Benchmarks",
            "",
            _HOW.format(count=results.rounds.count, seconds=results.rounds.seconds),
            f"- machine: {describe_machine()}",
            *(f"- {line}" for line in versions()),
            "",
            conditions.summary(results.conditions),
            "",
            *table(results.rows),
            *(["", "Left out: " + "; ".join(results.left_out) + "."] if results.left_out else []),
            "",
            "## The machine meanwhile",
            "",
            *conditions.table(results.conditions),
            "",
            NOTES.read_text(encoding="utf-8").rstrip(),
            "",
        ]
    )
