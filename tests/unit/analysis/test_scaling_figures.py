"""Which figures of which tests are fitted against the number of clients, and which are left alone."""

from __future__ import annotations

from typing import Any

from made_fleets import client, fleet_outcome
from made_journals import EPOCH_NS, MS, S, finished

from leadline.analysis import analyse
from leadline.analysis.model import Metric
from leadline.analysis.scaling import Growth
from leadline.analysis.scaling_figures import of_fleets


def fleets(sizes: tuple[int, ...], axis: str = "clients", **others: Any) -> list[dict[str, Any]]:
    """A journal of storms in which each client takes 1 ms more than the one before it."""
    entries: list[dict[str, Any]] = [{"record": "run-begin", "run_id": "r"}]
    for number, size in enumerate(sizes, 1):
        case = f"c{number:02}"
        label = f"{case}/1/storm"
        spec = {"name": "storm", "kind": "tunnel", "duration_ms": 10_000, "interval_ms": 100}
        rows = [client(one, configured_ns=(one + 1) * MS) for one in range(size)]
        event = finished(EPOCH_NS + 10 * S, fleet_outcome(rows), trial=label)
        entries += [
            {"record": "trial-begin", "trial": f"{case}/1", "case": case, "parameters": {axis: size, **others}},
            {"record": "test-begin", "label": label, "test": spec, "hosts": ["client1"], "start_at_ns": EPOCH_NS},
            {"host": "client1", "event": event},
            {"record": "server-process", "label": label, "t_ns": EPOCH_NS - 1, "cpu_s": 1.0, "resident_bytes": 10_000},
            {"record": "server-process", "label": label, "t_ns": EPOCH_NS + 11 * S, "cpu_s": 1.0 + 0.002 * size,
             "resident_bytes": 10_000 + 80_000 * size},
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


def test_one_number_or_no_axis_of_clients_is_not_fitted() -> None:
    assert analyse({}, fleets((50,))).scaling == {}
    assert analyse({}, fleets((50, 100), axis="packet")).scaling == {}
    assert set(analyse({}, fleets((50, 100), axis="clients.count")).scaling) == {"storm"}


def test_figures_that_nobody_measured_are_left_out() -> None:
    measured = [
        (number, {"connect_p50_ms": Metric(2.0 * number, "ms"), "server_cpu_s": Metric(None, "s")}) for number in (1, 2)
    ]
    assert [one.metric for one in of_fleets(measured)] == ["connect_p50_ms"]
