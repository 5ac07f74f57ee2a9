"""Figures as Prometheus remote write requests: protocol 0.1.0, protobuf in a snappy block.

Owns both encodings, which are small: a request is a list of series with labels and samples, and snappy's block format
allows a block of literals only. Each figure of each test of each trial is a sample at the time at which the test began,
so that a history is one series. Requests go from the oldest sample to the newest, as Prometheus takes them.

Formats: prometheus.io/docs/specs/prw/remote_write_spec, protobuf.dev/programming-guides/encoding, and snappy's
format_description.txt.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from leadline.analysis.model import RunAnalysis, TestResult
from leadline.plan.tags import split_figure
from leadline.report.exports import verdict_labels

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
MOST_SAMPLES = 2000
"""Samples in one request: about 500 kB."""
_LONGEST_LITERAL = 65_536

Labels = tuple[tuple[str, str], ...]
"""Names and values, sorted by name, as the protocol demands."""
Sample = tuple[int, float, Labels]
"""A time in ms since 1970, a value, and its series."""


def samples_of(analyses: Iterable[RunAnalysis]) -> list[Sample]:
    """Every known figure of every test that came to its end, oldest first; of equal times and series the last one.

    A test of a run that older versions recorded has no time of its own; it has that of its run.
    """
    found: dict[tuple[int, Labels], float] = {}
    for analysis in analyses:
        run_s = _seconds(analysis.started_at)
        for trial in analysis.trials:
            for test in trial.tests:
                at_s = test.started_at_s if test.started_at_s is not None else run_s
                if test.status == "done" and at_s is not None:
                    for labels, value in _figures(analysis, test):
                        found[round(at_s * 1000), labels] = value
    return sorted((at_ms, value, labels) for (at_ms, labels), value in found.items())


def requests_of(samples: Sequence[Sample], most: int = MOST_SAMPLES) -> Iterator[bytes]:
    """The bodies of requests with at most `most` samples each, in order of time."""
    for start in range(0, len(samples), most):
        yield request_of(samples[start : start + most])


def request_of(samples: Iterable[Sample]) -> bytes:
    """The body of one request."""
    series: dict[Labels, list[tuple[int, float]]] = {}
    for at_ms, value, labels in samples:
        series.setdefault(labels, []).append((at_ms, value))
    return snappy_block(b"".join(_field(1, _series(labels, points)) for labels, points in series.items()))


def snappy_block(content: bytes) -> bytes:
    """A snappy block of literals: larger than a compressed one, and read by every decoder."""
    parts = [_varint(len(content))]
    for start in range(0, len(content), _LONGEST_LITERAL):
        literal = content[start : start + _LONGEST_LITERAL]
        last = len(literal) - 1
        parts += [bytes((last << 2,)) if last < 60 else struct.pack("<BH", 61 << 2, last), literal]
    return b"".join(parts)


def _figures(analysis: RunAnalysis, test: TestResult) -> Iterator[tuple[Labels, float]]:
    """The figures of a test with their bounds."""
    about = {"plan": analysis.name, "case": test.case, "test": test.test, "kind": test.kind}
    for name, value in test.parameters.items():
        about.setdefault(_word(f"parameter_{name}"), str(value))
    for named, metric in test.metrics.items():
        name, tags = split_figure(named)
        for suffix, value in (("", metric.value), ("_low", metric.low), ("_high", metric.high)):
            if value is not None and math.isfinite(value):
                whole = {
                    **about,
                    **{_word(f"tag_{key}"): tags[key] for key in tags},
                    **dict(verdict_labels(metric)),
                    "__name__": _word(f"leadline_{name}{suffix}"),
                }
                yield tuple(sorted((key, text) for key, text in whole.items() if text)), float(value)


def _series(labels: Labels, points: Sequence[tuple[int, float]]) -> bytes:
    parts = [_field(1, _field(1, name.encode()) + _field(2, text.encode())) for name, text in labels]
    parts += [_field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(at_ms)) for at_ms, value in points]
    return b"".join(parts)


def _field(number: int, content: bytes) -> bytes:
    """A protobuf field with a length."""
    return bytes((number << 3 | 2,)) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative number is a 64-bit one."""
    left, made = number & 0xFFFF_FFFF_FFFF_FFFF, bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def _word(text: str) -> str:
    """A name with the characters that the protocol allows."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


def _seconds(started_at: str) -> float | None:
    try:
        return datetime.fromisoformat(started_at).timestamp()
    except ValueError:
        return None
