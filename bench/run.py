"""Leadline beside its peers, pairwise in one run: `make bench`. Prints each row as it is done, and writes
docs/benchmarks.md where all were run.

Every comparison alternates ours and theirs on the same two CPUs, generator on one and server on the other, and takes
the median of the ratios of neighbouring rounds. Absolute figures are this machine's; only the ratios mean something
elsewhere.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import crypto_rows
import host_rows
import http_rows
import rr_rows
import scenario_rows
import stream_rows
import transport_rows
import tunnel_rows
from document import document
from memory_rows import memory
from peers import PEERS
from programs import PeerMissing
from report_rows import report
from rows import Rounds, Row, line

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"

ROWS: dict[str, Callable[[Rounds], Iterator[Row]]] = {
    "http": http_rows.on_nginx,
    "bare": http_rows.beside_bare,
    "others": http_rows.beside_others,
    "null": http_rows.on_null,
    "scripts": http_rows.scripts,
    "memory": memory,
    "open": http_rows.open_model,
    "engines": http_rows.engines,
    "tls": http_rows.tls,
    "sessions": scenario_rows.sessions,
    "static": scenario_rows.static,
    "users": scenario_rows.memory,
    "arrivals": scenario_rows.open_model,
    "tcp": host_rows.tcp,
    "udp": host_rows.udp,
    "datagrams": transport_rows.datagrams,
    "pacing": transport_rows.paced,
    "streams": stream_rows.streams,
    "demand": stream_rows.service_demand,
    "iperf3": stream_rows.many_clients,
    "rr": rr_rows.transactions,
    "observing": host_rows.observing,
    "link": host_rows.link,
    "storm": tunnel_rows.storm,
    "fleet": tunnel_rows.many,
    "paced": tunnel_rows.paced,
    "tunnel": tunnel_rows.data,
    "crypto": crypto_rows.sealing,
    "report": report,
}


def main() -> int:
    """Run what was asked for, say what is left out, and write the document; 1 where a bound is missed."""
    given = _arguments()
    # Thousands of connections: servers and agents inherit it.
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    rows: list[Row] = []
    left_out = [f"{name} is not installed" for name in PEERS if shutil.which(name) is None]
    for missing in left_out:
        print(missing, file=sys.stderr)
    for name in given.only or ROWS:
        try:
            for row in ROWS[name](Rounds(given.rounds, given.seconds)):
                rows.append(row)
                print(line(row), flush=True)
        except PeerMissing as missing:
            print(f"{name} is left out: {missing}", flush=True)
            left_out.append(f"rows `{name}`: {missing}")
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            # The other rows stand all the same.
            rows.append(Row(f"rows `{name}`", f"failed: {error}", holds=False))
            print(line(rows[-1]), flush=True)
    if not given.only:
        DOCUMENT.write_text(document(rows, left_out, Rounds(given.rounds, given.seconds)), encoding="utf-8")
        print(f"written to {DOCUMENT.name}", file=sys.stderr)
    return 1 if any(row.holds is False for row in rows) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=_positive, default=5, help="rounds per comparison; the ratio is their median")
    parser.add_argument("--seconds", type=_positive, default=2, help="length of each run")
    parser.add_argument("--only", action="append", choices=ROWS, metavar="NAME", help=f"of {', '.join(ROWS)}")
    return parser.parse_args()


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
