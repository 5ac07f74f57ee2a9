"""`start_spread`: when each client starts, how long it runs, and the plans in which it makes no sense."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from small_plan import SMALL

from leadline.analysis import TestSpec
from leadline.errors import PlanError
from leadline.kinds.http.model import HttpTest
from leadline.kinds.tcp import TcpTest
from leadline.kinds.tunnel.model import TunnelTest
from leadline.plan import Plan
from leadline.plan.spread_starts import starts_ms

Load = Callable[..., Plan]
CLIENTS = ("client1", "client2", "client3", "client4")


def test_clients_start_evenly_over_the_spread_and_end_together() -> None:
    test = TcpTest(name="t", duration_ms=10_000, start_spread_ms=2000)
    assert starts_ms(test, CLIENTS) == {"client1": 0, "client2": 500, "client3": 1000, "client4": 1500}
    ends = {ms + test.delayed(ms).duration_ms for ms in starts_ms(test, CLIENTS).values()}
    assert ends == {10_000}
    assert TestSpec.read(test.model_dump()).start_spread_ns == 2_000_000_000


def test_without_a_spread_all_start_at_once() -> None:
    for test in (TcpTest(name="t"), TunnelTest(name="t")):
        assert set(starts_ms(test, CLIENTS).values()) == {0}


def test_paced_requests_of_a_late_client_end_with_the_others() -> None:
    test = HttpTest(name="t", duration_ms=10_000, rate_per_s=100.0, start_spread_ms=2000)
    assert [stage.duration_ms for stage in test.delayed(1500).stages] == [8500]


@pytest.mark.parametrize(
    ("keys", "mistake"),
    [
        ("kind: tcp, duration: 3s, warmup: 1s, start_spread: 2s", "leave no time of 3000 ms"),
        ("kind: tcp, duration: 10m, start_spread: 5m", "a server gives a client up"),
        ("kind: tcp, cross_check: iperf3, start_spread: 1s", "the clients of a cross-check start at once"),
        ("kind: http, rate: '0:10/5s', start_spread: 1s", "in the middle of a stage"),
        ("kind: tunnel, start_spread: 1s", "unknown key 'start_spread'"),
    ],
)
def test_spread_that_makes_no_sense_is_refused(load: Load, keys: str, mistake: str) -> None:
    lines = [line for line in SMALL.splitlines() if "kind: udp" not in line]
    lines.insert(next(n for n, line in enumerate(lines) if line.startswith("tests:")) + 1, f"  - {{name: t, {keys}}}")
    with pytest.raises(PlanError) as raised:
        load("\n".join(line for line in lines if not line.startswith("targets")) + "\n")
    assert any(mistake in str(error) for error in (raised.value, *raised.value.others))
