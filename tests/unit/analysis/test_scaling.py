"""Known exponents are found, bounded and doubted; which figures of which tests are fitted at all."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_fleets import client, fleet_outcome
from made_journals import EPOCH_NS, MS, S, finished, observation, process

from leadline.analysis import analyse
from leadline.analysis.model import Bound, Metric, Reason, Validity, Verdict
from leadline.analysis.scaling import Point, fit, number_of, of_kind
from leadline.statistics import Growth

VALID = Validity(Verdict.VALID)
NUMBERS = (50, 100, 200, 400, 800)


def law(
    exponent: float, fixed: float = 0.0, noise: float = 0.0, numbers: tuple[int, ...] = NUMBERS, repeats: int = 1
) -> list[tuple[float, float | None]]:
    """Figures of a law with a fixed cost and even scatter, the same every time."""
    chance = random.Random(7)
    return [
        (number, (fixed + 0.3 * number**exponent) * (1 + chance.uniform(-noise, noise)))
        for number in numbers
        for _ in range(repeats)
    ]


@pytest.mark.parametrize(
    ("exponent", "growth"),
    [(0.0, Growth.CONSTANT), (0.5, Growth.LESS), (1.0, Growth.LINEAR), (1.3, Growth.MORE), (2.0, Growth.MORE)],
)
def test_a_law_without_scatter_is_found_exactly(exponent: float, growth: Growth) -> None:
    found = fit("connect_p50_ms", "ms", law(exponent))
    assert found.exponent == pytest.approx(exponent, abs=1e-9)
    assert found.low == pytest.approx(exponent, abs=1e-6) and found.high == pytest.approx(exponent, abs=1e-6)
    assert found.growth is growth
    assert found.upper_exponent == pytest.approx(exponent, abs=1e-9)
    assert found.notes == ()


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_the_interval_holds_the_truth_as_often_as_it_promises(exponent: float) -> None:
    chance = random.Random(11)
    held = 0
    for _ in range(400):
        points = [(number, number**exponent * 2 ** chance.gauss(0, 0.1)) for number in NUMBERS]
        found = fit("m", "", points)
        assert found.low is not None and found.high is not None
        held += found.low <= exponent <= found.high
    assert 0.92 <= held / 400 <= 0.98


def test_scatter_that_hides_the_answer_leaves_it_open() -> None:
    clear = fit("m", "", law(1.2, noise=0.02, repeats=3))
    assert clear.growth is Growth.MORE
    blurred = fit("m", "", law(1.2, noise=0.6))
    assert blurred.growth is Growth.UNKNOWN
    assert blurred.low is not None and blurred.low < 1 < (blurred.high or 0)


def test_too_few_numbers_give_no_interval_and_no_answer() -> None:
    two = fit("m", "", law(1.0, numbers=(50, 400)))
    assert two.exponent == pytest.approx(1.0)
    assert (two.low, two.high, two.growth, two.upper_exponent) == (None, None, Growth.UNKNOWN, None)
    assert "2 numbers give no interval" in two.notes[0]
    repeated = fit("m", "", law(1.0, noise=0.01, numbers=(50, 400), repeats=5))
    assert repeated.growth is Growth.UNKNOWN, (
        "two numbers cannot show that the line is one, however often they are tried"
    )
    one = fit("m", "", law(1.0, numbers=(50,), repeats=4))
    assert (one.exponent, one.growth) == (None, Growth.UNKNOWN)
    assert fit("m", "", []).exponent is None


def test_notes_name_three_numbers_as_few_and_a_short_span_as_short() -> None:
    notes = " ".join(fit("m", "", law(1.0, numbers=(50, 100, 150))).notes)
    assert "3 numbers leave 1 degrees of freedom" in notes
    assert "span a factor of 3 only" in notes


def test_a_fixed_cost_bends_the_line_and_is_named() -> None:
    found = fit("m", "", law(1.0, fixed=100.0))
    assert found.growth is not Growth.LINEAR
    assert found.upper_exponent is not None and found.exponent is not None
    assert found.upper_exponent > found.exponent, "where the fixed cost weighs least it looks most like the truth"
    assert any("a fixed cost hides growth" in note for note in found.notes)
    levelling = fit("m", "", [(number, min(number, 210.0)) for number in NUMBERS])
    assert any("it levels off" in note for note in levelling.notes)


def test_repeats_of_three_numbers_do_not_make_a_bent_line_linear() -> None:
    for repeats in (1, 10):
        found = fit("m", "", [(1, 1.0), (10, 6.3), (100, 100.0)] * repeats)
        assert found.exponent == pytest.approx(1.0)
        assert found.growth is Growth.UNKNOWN
        assert found.low is not None and found.low < 0


def test_points_without_a_figure_are_left_out_and_counted() -> None:
    found = fit("m", "", [*law(1.0), (1600, None), (3200, 0.0)])
    assert len(found.points) == 5
    assert found.growth is Growth.LINEAR
    assert found.notes == ("2 points have no figure and are left out",)


@pytest.mark.parametrize("bound", [Bound.NONE, Bound.LEAST])
def test_disturbed_figures_are_left_out_of_the_fit_and_counted(bound: Bound) -> None:
    """Two of five rates grew with the number; other work made them half of that."""
    points = []
    for number in (1, 2, 4, 8, 16):
        rate = Metric(1000.0 * number, "1/s")
        if number in (8, 16):
            rate = replace(rate, value=500.0 * number).doubted(Verdict.DISTURBED, "other-work", bound)
        points.append(Point(float(number), {"requests_per_s": rate}, VALID))
    found = next(one for one in of_kind("http", points) if one.metric == "requests_per_s")
    assert found.exponent == pytest.approx(1.0)
    assert [number for number, _ in found.points] == [1, 2, 4]
    said = "2 disturbed points are left out: at 8; at 16"
    assert (said in found.notes) is (bound is Bound.NONE)
    assert any("8" in note and "16" in note and "left out" in note for note in found.notes)


def fleets(sizes: tuple[int, ...], axis: str = "clients", **others: Any) -> list[dict[str, Any]]:
    """A journal of storms in which each client takes 1 ms more than the one before it."""
    entries: list[dict[str, Any]] = [{"record": "run-begin", "run_id": "r"}]
    for number, size in enumerate(sizes, 1):
        case = f"c{number:02}"
        label = f"{case}/1/storm"
        spec = {"name": "storm", "kind": "tunnel", "duration_ms": 10_000, "interval_ms": 100}
        rows = [client(one, configured_ns=(one + 1) * MS) for one in range(size)]
        event = finished(EPOCH_NS + 10 * S, fleet_outcome(rows), trial=label)
        server = (
            (EPOCH_NS - 1, process("vpn", 7, 0.99, 0.0, 10_000, scheduled_s=1.0)),
            (EPOCH_NS + 11 * S, process("vpn", 7, 0.99, 0.0, 10_000 + 80_000 * size, scheduled_s=1.0 + 0.002 * size)),
        )
        entries += [
            {"record": "trial-begin", "trial": f"{case}/1", "case": case, "parameters": {axis: size, **others}},
            {"record": "test-begin", "label": label, "test": spec, "hosts": ["client1"], "start_at_ns": EPOCH_NS},
            {"host": "client1", "event": event},
            {"record": "server-process", "label": label, "pid": 7},
            *({"host": "client1", "event": observation(at_ns, processes=[one])} for at_ns, one in server),
            {"record": "test-end", "label": label, "status": "done", "error": None},
            {"record": "trial-end", "trial": f"{case}/1", "status": "done", "error": None},
        ]  # fmt: skip
    return [*entries, {"record": "run-end", "status": "done"}]


def test_a_run_over_numbers_of_clients_is_fitted_figure_by_figure() -> None:
    found = analyse({}, fleets((50, 100, 200, 400))).scaling
    assert set(found) == {"storm"}
    fitted = {one.metric: one for one in found["storm"]}
    assert set(fitted) == {
        *("connect_p50_ms", "connect_p99_ms", "connect_max_ms"),
        *("server_cpu_s", "server_memory_bytes", "memory_bytes"),
    }
    assert fitted["connect_max_ms"].growth is Growth.LINEAR
    assert fitted["server_cpu_s"].growth is Growth.LINEAR
    assert fitted["server_memory_bytes"].growth is Growth.LINEAR
    assert fitted["memory_bytes"].growth is Growth.CONSTANT, "every fleet's outcome says 40 MB"


def test_cases_that_differ_in_more_than_clients_are_fitted_apart() -> None:
    entries = fleets((50, 100), **{"sut.transport": "udp"})[:-1] + fleets((50, 100), **{"sut.transport": "tcp"})[1:]
    assert set(analyse({}, entries).scaling) == {"storm (sut.transport=udp)", "storm (sut.transport=tcp)"}


def test_a_case_with_one_more_parameter_is_no_point_of_the_others() -> None:
    entries = fleets((50, 100, 200))
    [third] = [entry for entry in entries if entry.get("record") == "trial-begin" and entry["case"] == "c03"]
    third["parameters"]["sut.cipher"] = "AES-128-GCM"
    assert set(analyse({}, entries).scaling) == {"storm"}
    assert {number for number, _ in analyse({}, entries).scaling["storm"][0].points} == {50, 100}


def test_one_number_is_not_fitted_and_any_axis_of_numbers_is() -> None:
    assert analyse({}, fleets((50,))).scaling == {}
    [(title, found)] = analyse({}, fleets((50, 100), axis="packet")).scaling.items()
    assert (title, {one.axis for one in found}) == ("storm by packet", {"packet"})
    assert set(analyse({}, fleets((50, 100), axis="clients.count")).scaling) == {"storm"}


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (50, 50.0),
        (0.5, 0.5),
        ("20mbit", 20e6),
        ("64KiB", 65536.0),
        ("openvpn", None),
        (True, None),
        (0, None),
        (None, None),
    ],
)
def test_numbers_of_an_axis(value: object, number: float | None) -> None:
    assert number_of(value) == number


def usl(number: float) -> float:
    """1000 each, 5 % contention, 0.1 % coherency: a peak at 30.8."""
    return 1000 * number / (1 + 0.05 * (number - 1) + 0.001 * number * (number - 1))


def test_a_rate_over_connections_has_the_scalability_law_within_a_tenth() -> None:
    random = np.random.default_rng(11)
    points = [
        (float(n), usl(n) * (1 + 0.02 * random.standard_normal())) for n in (1, 2, 4, 8, 16, 32, 64) for _ in range(3)
    ]
    law = fit("requests_per_s", "1/s", points, axis="tests.http.connections").law
    assert fit("throughput_bps", "bit/s", points, axis="lab.gateway_cpus").law == law
    assert law is not None and law.peak is not None and law.knee is not None
    assert law.contention == pytest.approx(0.05, rel=0.1)
    assert law.coherency == pytest.approx(0.001, rel=0.1)
    assert law.peak == pytest.approx(math.sqrt(0.95 / 0.001), rel=0.1)
    assert law.curve[0][0] == 1 and law.curve[-1][0] == 64
    assert dict(law.curve)[64.0] == pytest.approx(usl(64), rel=0.1)


@pytest.mark.parametrize(("unit", "axis"), [("us", "connections"), ("1/s", "packet"), ("bit/s", "tests.udp.rate")])
def test_the_law_is_of_rates_over_users_or_cores_alone(unit: str, axis: str) -> None:
    assert fit("figure", unit, [(n, usl(n)) for n in (1, 2, 4, 8, 16)], axis=axis).law is None


def test_figures_without_measurements_are_left_out() -> None:
    measured = [
        Point(number, {"connect_p50_ms": Metric(2.0 * number, "ms"), "server_cpu_s": Metric(None, "s")}, VALID)
        for number in (1, 2)
    ]
    assert [one.metric for one in of_kind("tunnel", measured)] == ["connect_p50_ms"]


def test_points_that_say_nothing_of_the_server_are_left_out_and_named() -> None:
    limited = Validity(Verdict.GENERATOR_LIMITED, (Reason("thread-saturated", "the busiest thread"),))
    cut_off = Validity(Verdict.INCOMPLETE, (Reason("clients-unfinished", "9 of 1600 were on their way up"),))
    short = Validity(Verdict.INCOMPLETE, (Reason("window-too-short", "it was over soon"),))
    validities = {50: short, 800: limited, 1600: cut_off}
    measured = [
        Point(
            number,
            # What the generator's own limit would make look worse than linear.
            {"connect_p99_ms": Metric(float(number if number < 800 else number**2), "ms")},
            validities.get(number, VALID),
        )
        for number in (50, 100, 200, 400, 800, 1600)
    ]
    [found] = of_kind("tunnel", measured)
    assert [number for number, _ in found.points] == [50, 100, 200, 400]
    assert found.growth is Growth.LINEAR
    assert found.notes[0] == (
        "2 points are left out: at 800 the generator was the limit; at 1600 incomplete (9 of 1600 were on their way up)"
    )


def test_a_lower_bound_is_no_point_of_a_fit() -> None:
    measured = [
        Point(number, {"connect_p99_ms": Metric(float(number), "ms", censored=number == 400)}, VALID)
        for number in (50, 100, 200, 400)
    ]
    [found] = of_kind("tunnel", measured)
    assert [number for number, _ in found.points] == [50, 100, 200]
    assert "left out, because only a bound is known: at 400" in found.notes


def test_clients_that_failed_are_named_where_they_did() -> None:
    def point(number: int, failed: int, partial: int) -> Point:
        counts = {"clients": number, "failed": failed, "partial": partial}
        metrics = {name: Metric(float(count), "count") for name, count in counts.items()}
        return Point(number, {**metrics, "connect_p50_ms": Metric(float(number), "ms")}, VALID)

    [found] = of_kind("tunnel", [point(200, 0, 0), point(400, 0, 0), point(800, 300, 12)])
    assert [number for number, _ in found.points] == [200, 400, 800]
    assert found.notes[0] == "the figures are of clients that connected; not configured were 312 of 800"


def test_a_run_leaves_out_what_its_verdict_doubts() -> None:
    entries = fleets((50, 100, 200, 400))
    for entry in entries:
        if entry.get("label") == "c04/1/storm" and entry["record"] == "test-end":
            entry.update(status="failed", error="the agent was lost")
    found = analyse({}, entries).scaling["storm"]
    assert {number for one in found for number, _ in one.points} == {50, 100, 200}
