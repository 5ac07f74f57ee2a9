"""Leadline beside its peers, pairwise in one run: `make bench`. Prints each row as it is done, and writes
docs/benchmarks.md where all were run, even if some failed. `make bench ONLY="scenario rr"` runs some of them, and
`make bench AGAINST=AGENT` sets the agent beside an older one, row by row.

Every comparison alternates ours and theirs on the same two CPUs, generator on one and server on the other, and takes
the median of the ratios of neighbouring rounds. Absolute figures are this machine's; only the ratios mean something
elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import against_rows
import controller_rows
import crypto_rows
import demo_rows
import fetched
import host_rows
import http_rows
import ikev2_rows
import packet_rows
import replay_rows
import rr_rows
import scale_rows
import scenario_rows
import stream_rows
import transport_rows
import tunnel_rows
import wireguard_rows
from conditions import Watch
from document import Results, document
from memory_rows import memory
from peers import PEERS
from programs import PeerMissing
from report_rows import report
from rows import Rounds, Row, failed, line

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"

Group = Callable[[Rounds], Iterator[Row]]

TOPICS: dict[str, dict[str, Group]] = {
    "http": {
        "nginx": http_rows.on_nginx,
        "null": http_rows.on_null,
        "scripts": http_rows.scripts,
        "memory": memory,
        "open": http_rows.open_model,
        "engines": http_rows.engines,
        "tls": http_rows.tls,
    },
    "scenario": {
        "sessions": scenario_rows.sessions,
        "static": scenario_rows.static,
        "users": scenario_rows.memory,
        "arrivals": scenario_rows.open_model,
        "replay": replay_rows.log,
    },
    "transport": {
        "streams": stream_rows.streams,
        "demand": stream_rows.service_demand,
        "datagrams": transport_rows.datagrams,
        "pacing": transport_rows.paced,
        "rr": rr_rows.transactions,
        "iperf3": stream_rows.many_clients,
        "command": host_rows.command,
    },
    "packets": {
        "packet-rates": packet_rows.rates,
        "packet-pacing": packet_rows.paced,
        "packet-costs": packet_rows.costs,
    },
    "host": {
        "observing": host_rows.observing,
        "link": host_rows.link,
        "controller": controller_rows.controller,
        "agents": scale_rows.agents,
    },
    "vpn": {
        "storm": tunnel_rows.storm,
        "fleet": tunnel_rows.many,
        "paced": tunnel_rows.paced,
        "tunnel": tunnel_rows.data,
        "wireguard-fleet": wireguard_rows.memory,
        "ikev2-arrivals": ikev2_rows.arrivals,
        "crypto": crypto_rows.sealing,
    },
    "long": {"report": report, "demo": demo_rows.demo},
}
"""Groups of rows by topic."""

_FETCHED: dict[str, Callable[[], object]] = {
    "scenario": lambda: (fetched.k6(), fetched.jmeter(), fetched.locust()),
    "transport": fetched.iperf3,
}
"""By topic: what is fetched before the first group, so that no group is measured beside it."""

_LIMIT_S = 240
"""A group that takes longer fails, and the others go on."""
_LONG_LIMIT_S = 900
"""The same for `demo`, which builds all."""
_ENDING_S = 20


def main() -> int:
    """Run what was asked for, say what is left out, and write the document; 1 where a bound is missed."""
    given = _arguments()
    # `leadline` and its agent are found beside this Python, by what the bench starts too.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # Thousands of connections: servers and agents inherit it.
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    signal.signal(signal.SIGALRM, give_up)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = Results(Rounds(given.rounds, given.seconds))
    if given.against is None:
        groups = groups_of(given.only)
        _prepare(groups, results)
    else:
        groups = against_rows.groups(given.against)
        groups = {name: groups[name] for name in given.only or groups if name in groups}
    if not groups:
        print(f"no such rows run against an older agent, but {', '.join(against_rows.NAMES)}", file=sys.stderr)
        return 2
    try:
        for number, (name, group) in enumerate(groups.items(), 1):
            print(f"{number} of {len(groups)}: {name}", file=sys.stderr)
            run_group(name, group, results, _LONG_LIMIT_S if group is demo_rows.demo else _LIMIT_S)
    except KeyboardInterrupt:
        results.left_out.append("the bench was interrupted; the rows after these did not run")
    finally:
        if not given.only and given.against is None:
            DOCUMENT.write_text(document(results), encoding="utf-8")
            print(f"written to {DOCUMENT.name}", file=sys.stderr)
    return 1 if any(row.holds is False for row in results.rows) else 0


def groups_of(only: list[str] | None) -> dict[str, Group]:
    """The groups of the given names, of groups or of topics; all by default."""
    return {
        name: group
        for topic, groups in TOPICS.items()
        for name, group in groups.items()
        if only is None or topic in only or name in only
    }


def _prepare(groups: Mapping[str, Group], results: Results) -> None:
    """Say which packages are missing, and fetch the other peers."""
    results.left_out += [f"{name} is not installed" for name in PEERS if shutil.which(name) is None]
    for missing in results.left_out:
        print(missing, file=sys.stderr)
    for topic, fetch in _FETCHED.items():
        if TOPICS[topic].keys() & groups.keys():
            # The rows that need it say why it is missing.
            with contextlib.suppress(PeerMissing):
                fetch()


def run_group(name: str, group: Group, results: Results, limit_s: float = _LIMIT_S) -> None:
    """Run one group. Whatever it fails by, the rows before it stand, and so do the other groups."""
    watch = Watch(name)
    # Again and again after the limit: what ends a group may hang too.
    signal.setitimer(signal.ITIMER_REAL, limit_s, _ENDING_S)
    try:
        for row in group(results.rounds):
            results.rows.append(row)
            print(line(row), flush=True)
    except PeerMissing as missing:
        print(f"{name} is left out: {missing}", flush=True)
        results.left_out.append(f"rows `{name}`: {missing}")
    except Exception as error:
        traceback.print_exc()
        results.rows.append(failed(f"rows `{name}`", f"{type(error).__name__}: {error}"))
        print(line(results.rows[-1]), flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        results.conditions.append(watch.end())


def give_up(number: int, frame: object) -> None:
    """End what runs, as its time is over: the handler of SIGALRM.

    Raises:
        TimeoutError: always.
    """
    raise TimeoutError("not done within its time limit")


def _arguments() -> argparse.Namespace:
    names = [*TOPICS, *(name for groups in TOPICS.values() for name in groups), *against_rows.NAMES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=_positive, default=3, help="rounds per comparison; the ratio is their median")
    parser.add_argument("--seconds", type=_positive, default=2, help="length of each run")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--against", type=Path, metavar="AGENT", help="an older agent, instead of the peers")
    return parser.parse_args()


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
