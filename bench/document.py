"""docs/benchmarks.md from the rows: what they were taken on, how to read them, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from environment import describe_machine, versions
from rows import Rounds, Row, table

NOTES = Path(__file__).with_name("notes.md")
"""What counts and profiles show, kept by hand."""

_HOW = """\
Written by `make bench`. Ours and theirs alternate on the same two CPUs, the generator on one and the server on the
other; a ratio is the median over {count} rounds of {seconds} s of ours by theirs in the same round. Absolute figures
are this machine's; the ratios are what to compare.

- **CPU per request** is the user and system time of the generator's whole process, from its start to its end, by its
  requests; for Leadline that is the agent. What the generating thread alone takes stands beside it.
- **HTTP** is 50 connections that stay open, one generating thread, and a body of 12 bytes, from an nginx of one worker
  or from `leadline serve --http`, the null responder.
- Over loopback the sender's CPU also carries the packet into the receiver's socket, for every tool alike: that part of
  a ratio no generator can change. **The bare loop** (`bench/bare.c`) waits, receives and sends, and does nothing else:
  what it takes is the kernel's price, and where it stands beside a peer is about how low a generator can come.
- **Scripts** are those of `crates/script/tests/scripts`, the same file for both tools.
- **Handshakes** are full ones on both sides: the server resumes nothing.
- **Packets** are sealed and opened in memory by one thread, over 16 KiB, by its CPU time; `openssl speed` encrypts one
  buffer over and over with one key and nonce, and makes no tag. Ratios are of rates.
- **Lateness** is compared with a bare schedule (`bench/wake.c`), a thread that wakes for each due instant on the same
  CPU, is busy for 20 µs, and sends nothing, while another one keeps the server's CPU as busy as the server does: what
  it is late by is the machine's and its host's doing.
- **Memory** is the most that the agent's process had resident; the kernel keeps its sockets elsewhere.
- **Report** is `leadline report` from the journal, on all CPUs, with tables and page. The journal is made of a short
  run of this machine, its lines shifted in time and renamed (`bench/made_journal.py`).
"""


def document(rows: Sequence[Row], left_out: Sequence[str], rounds: Rounds) -> str:
    """The whole text."""
    return "\n".join(
        [
            "# Benchmarks",
            "",
            _HOW.format(count=rounds.count, seconds=rounds.seconds),
            f"- machine: {describe_machine()}",
            *(f"- {line}" for line in versions()),
            "",
            *table(rows),
            *(["", "Left out: " + "; ".join(left_out) + "."] if left_out else []),
            "",
            NOTES.read_text(encoding="utf-8").rstrip(),
            "",
        ]
    )
