"""JMeter's timers: how long users wait has JMeter's distribution, by the gaps between their requests at one server.

Both are real runs, whose gaps also have what the machine adds; `make test-all` compares them. What a timer adds in the
engine alone is tested in virtual time, in crates/scenario.
"""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import pytest
from jmeter import JMeter, is_available
from oracle_elements import Case, case, get, timer
from recording_server import RecordingServer
from scipy.stats import ks_2samp

from in_process import leadline
from jmx_elements import element

USERS, LOOPS = 20, 21
LEAST_P = 1e-4
"""Two samples of one distribution differ more than this in one of 10,000 comparisons."""
pytestmark = [
    pytest.mark.agent,
    pytest.mark.full_matrix,
    pytest.mark.exclusive,
    pytest.mark.takes(60),
    pytest.mark.skipif(not is_available(), reason="JMeter needs Maven and a JDK"),
]


def random_timer(kind: str, delay: str, spread: str) -> str:
    """A timer of a fixed and a random part, ms."""
    return element(kind, kind, ConstantTimer__delay=delay, RandomTimer__range=spread)


def waits(name: str, kept: str) -> Case:
    """Users that wait before each of their requests."""
    return case(name, get("/a", kept), users=str(USERS), loops=str(LOOPS))


CASES = {
    one.name: one
    for one in (
        waits("constant", timer("150")),
        waits("uniform", random_timer("UniformRandomTimer", "50", "200")),
        waits("gaussian", random_timer("GaussianRandomTimer", "200", "60")),
        waits("poisson", random_timer("PoissonRandomTimer", "50", "150")),
        waits(
            "throughput", element("ConstantThroughputTimer", "pace", gui="TestBeanGUI", throughput=300.0, calcMode=0)
        ),
    )
}


@pytest.mark.parametrize("name", CASES)
def test_users_wait_as_long_as_jmeters_users_do(
    name: str, server: RecordingServer, oracle: JMeter, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.jmx"
    plan.write_bytes(CASES[name].content)
    server.taken()
    oracle.run(plan, port=str(server.port))
    theirs = gaps_ms(server)
    done = leadline("scenario", plan, "-J", f"port={server.port}", "--json")
    assert done.returncode == 0, done.stderr
    ours = gaps_ms(server)
    assert len(ours) == len(theirs) == USERS * (LOOPS - 1)
    if name in ("constant", "throughput"):
        # All gaps are one, but for what the machine adds.
        assert statistics.median(ours) == pytest.approx(statistics.median(theirs), rel=0.05)
    else:
        assert ks_2samp(ours, theirs).pvalue > LEAST_P, (quartiles(ours), quartiles(theirs))


def gaps_ms(server: RecordingServer) -> list[float]:
    """The time between two requests of one user, of all users since the last call."""
    with server.lock:
        instants_s = list(server.instants_s.values())
    server.taken()
    return [1e3 * (later - one) for times in instants_s for one, later in itertools.pairwise(times)]


def quartiles(values: list[float]) -> list[float]:
    """The three of them, ms."""
    return [round(one, 1) for one in statistics.quantiles(values)]
