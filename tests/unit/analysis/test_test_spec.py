"""What a judgement takes from a test's record: the pace at its highest, and whether it was to hold still."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.analysis import TestSpec
from leadline.kinds.http.model import HttpTest
from leadline.kinds.http.workload import http_workload
from leadline.plan.field_types import validate_input


@pytest.mark.parametrize(
    ("rate", "gap_s", "steady"),
    [
        (None, None, True),
        (1000, 0.001, True),
        ("500/1s,500/2s", 0.002, True),
        ("0:1000/10s,1000/60s", 0.001, False),
        ("100:0/10s", 0.01, False),
    ],
)
def test_rate_sets_send_gap_and_steadiness(rate: Any, gap_s: float | None, steady: bool) -> None:
    test = validate_input(HttpTest, {"name": "h", **({} if rate is None else {"rate": rate})})
    for record in (test.model_dump(), http_workload(test, "h", None, None).model_dump()):
        spec = TestSpec.read(record)
        assert (spec.send_gap_s, spec.paced, spec.steady) == (gap_s, gap_s is not None, steady)
