"""Remote write requests, read by a decoder of the tests' own: protobuf in snappy, with sorted labels and true times."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_runs import gateway_run

from leadline.analysis.model import Metric, RunAnalysis
from leadline.report.remote_write import MOST_SAMPLES, request_of, requests_of, samples_of, snappy_block

Series = tuple[dict[str, str], list[tuple[float, int]]]


def varint(content: bytes, at: int) -> tuple[int, int]:
    """A number, and where the next thing begins."""
    number = shift = 0
    while True:
        number |= (content[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 0x80:
            return number, at


def unsnapped(block: bytes) -> bytes:
    """The content of a snappy block, whether it has copies or not."""
    length, at = varint(block, 0)
    made = bytearray()
    while at < len(block):
        tag, at = block[at], at + 1
        if tag & 3 == 0:
            size = tag >> 2
            if size >= 60:
                more = size - 59
                size, at = int.from_bytes(block[at : at + more], "little"), at + more
            made += block[at : at + size + 1]
            at += size + 1
        else:
            raise AssertionError("a copy")
    assert len(made) == length
    return bytes(made)


def fields(content: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a protobuf message."""
    at = 0
    while at < len(content):
        key, at = varint(content, at)
        match key & 7:
            case 0:
                number, at = varint(content, at)
                yield key >> 3, number
            case 1:
                yield key >> 3, content[at : at + 8]
                at += 8
            case 2:
                size, at = varint(content, at)
                yield key >> 3, content[at : at + size]
                at += size
            case other:
                raise AssertionError(other)
    assert at == len(content)


def nested(content: bytes | int) -> list[tuple[int, bytes | int]]:
    assert isinstance(content, bytes)
    return list(fields(content))


def decoded(body: bytes) -> list[Series]:
    found = []
    for number, series in fields(unsnapped(body)):
        assert number == 1
        labels, samples = {}, []
        names = []
        for part, content in nested(series):
            values = dict(nested(content))
            if part == 1:
                name, text = values[1], values[2]
                assert isinstance(name, bytes) and isinstance(text, bytes)
                names.append(name)
                labels[name.decode()] = text.decode()
            else:
                value, at_ms = values[1], values[2]
                assert isinstance(value, bytes) and isinstance(at_ms, int)
                samples.append((struct.unpack("<d", value)[0], at_ms - (1 << 64 if at_ms >> 63 else 0)))
        assert names == sorted(set(names)), "labels are sorted, and each occurs once"
        found.append((labels, samples))
    return found


def timed() -> RunAnalysis:
    """A run whose tests began at known times, and whose figures are bounded."""
    run = gateway_run()
    trials = []
    for number, trial in enumerate(run.trials):
        tests = tuple(
            replace(
                test,
                started_at_s=1_790_000_000 + 60.0 * number,
                metrics={name: replace(one, low=one.value, high=one.value) for name, one in test.metrics.items()},
            )
            for test in trial.tests
        )
        trials.append(replace(trial, tests=tests))
    return replace(run, trials=tuple(trials))


@given(st.binary(max_size=200) | st.integers(0, 200_000).map(bytes))
def test_snappy_block_is_read_back(content: bytes) -> None:
    assert unsnapped(snappy_block(content)) == content


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.text(min_size=1)), max_size=20))
def test_samples_are_read_back(rows: list[tuple[int, float, str]]) -> None:
    samples = [(at_ms, value, (("__name__", "leadline_x"), ("case", text))) for at_ms, value, text in rows]
    found = [(at, value, labels["case"]) for labels, points in decoded(request_of(samples)) for value, at in points]
    assert sorted(found) == sorted((at, value, text) for at, value, text in rows)


def test_each_figure_of_each_trial_has_the_time_of_its_test() -> None:
    run = timed()
    test = next(test for test in run.trials[1].tests if test.status == "done")
    name, metric = next((name, metric) for name, metric in test.metrics.items() if metric.value is not None)
    found = decoded(request_of(samples_of([run])))
    series = [
        samples
        for labels, samples in found
        if (labels["__name__"], labels["case"], labels["test"]) == (f"leadline_{name}", test.case, test.test)
        and labels["verdict"] == metric.verdict.value
    ]
    assert (metric.value, 1_790_000_060_000) in [sample for samples in series for sample in samples]
    assert all("run" not in labels and labels["plan"] == "gateway" for labels, _ in found)
    assert any(labels["__name__"].endswith("_low") for labels, _ in found)


def test_requests_are_bounded_and_go_from_old_to_new() -> None:
    samples = samples_of([timed()])
    bodies = list(requests_of(samples, 7))
    assert len(bodies) == -(-len(samples) // 7)
    times = [[at for _, points in decoded(body) for _, at in points] for body in bodies]
    assert all(len(one) <= 7 for one in times)
    assert all(max(first) <= min(second) for first, second in pairwise(times))
    assert MOST_SAMPLES == 2000


def test_test_without_a_time_has_that_of_its_run() -> None:
    run = replace(gateway_run(), started_at="2026-01-31T02:00:00+00:00")
    at_ms = round(datetime.fromisoformat(run.started_at).timestamp() * 1000)
    assert {at for at, _, _ in samples_of([run])} == {at_ms}
    assert samples_of([replace(run, started_at="")]) == []


def test_bounds_have_a_label() -> None:
    run = timed()
    metrics = {"exact": Metric(1.0, "us"), "censored": Metric(1.0, "us", censored=True)}
    (trial, *_) = run.trials
    tests = tuple(replace(test, metrics=metrics) for test in trial.tests[:1])
    found = decoded(request_of(samples_of([replace(run, trials=(replace(trial, tests=tests),))])))
    assert {labels["__name__"]: labels.get("bound") for labels, _ in found} == {
        "leadline_exact": None,
        "leadline_censored": "at least",
    }


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_unknown_figures_are_left_out(value: float | None) -> None:
    run = timed()
    trials = [
        replace(trial, tests=tuple(replace(test, metrics={"x": Metric(value, "")}) for test in trial.tests))
        for trial in run.trials
    ]
    assert samples_of([replace(run, trials=tuple(trials))]) == []


def test_parameters_with_the_same_letters_are_one_label() -> None:
    run = timed()
    (trial, *_), odd = run.trials, {"packet size": 1, "packet.size": 2, "näme\n": 'a"b'}
    tests = tuple(replace(test, parameters=odd) for test in trial.tests)
    labels, _ = decoded(request_of(samples_of([replace(run, trials=(replace(trial, tests=tests),))])))[0]
    assert labels["parameter_packet_size"] == "1" and labels["parameter_n_me_"] == 'a"b'
