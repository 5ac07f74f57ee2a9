"""A plan whose tests have `peer: iperf3`: the keys for iperf3's options, in one run of a lab."""

from __future__ import annotations

from pathlib import Path

import cli_runs as cli
import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.takes(15),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
]

PLAN = """\
name: as-iperf3
sut: {kind: route}
lab: {link: {rate: 1gbit}}
repeat: 1
tests:
  # iperf3 -P 3 -n 2000001 -l 10000 -w 256K -M 1000 -C reno -S 0x28
  - {name: n, kind: tcp, peer: iperf3, flows: 3, bytes: 2000001, block: 10000, window: 256KiB, mss: 1000,
     congestion: reno, dscp: AF11, duration: 60s}
  # iperf3 -R -Z -n 1M, without -N
  - {name: r, kind: tcp, peer: iperf3, direction: down, send: sendfile, nagle: true, bytes: 1MiB, duration: 60s}
  # iperf3 --bidir -b 10M -t 1.5 -O 0.1
  - {name: both, kind: tcp, peer: iperf3, direction: both, rate: 10mbit, duration: 1600ms, warmup: 100ms}
  # iperf3 -Z -n 1M --skip-rx-copy --fq-rate 100M
  - {name: z, kind: tcp, peer: iperf3, send: sendfile, receive: discard, pacing: 100mbit, bytes: 1MiB, duration: 60s}
  # iperf3 -u -k 50 -l 500 -b 2M, then -R, slow enough that a socket's buffer holds what comes while a process stalls
  - {name: k, kind: udp, peer: iperf3, number: 50, packet: 500, rate: 2mbit, duration: 60s}
  - {name: ur, kind: udp, peer: iperf3, direction: down, flows: 2, rate: 100kbit, packet: 500, duration: 1500ms}
"""


def test_plan_measures_with_iperf3_at_the_other_end(tmp_path: Path) -> None:
    run = cli.run(PLAN, tmp_path)
    assert run.code == 0, run.err
    figures = {
        row["test"]: {name: metric["value"] for name, metric in row["metrics"].items()}
        for row in run.report()["summaries"]
    }
    assert set(figures) == {"n", "r", "both", "z", "k", "ur"}
    assert (figures["n"]["sent_bytes"], figures["n"]["received_bytes"]) == (2_000_001, 2_000_001)
    for name in ("r", "z"):
        assert figures[name]["received_bytes"] == figures[name]["sent_bytes"] >= 1 << 20
    for figure in ("sent_bytes", "received_bytes"):
        assert figures["both"][figure] > 0
    assert (figures["k"]["lost"], figures["k"]["sent"]) == (0, 50)
    assert figures["ur"]["lost"] == 0
