"""The data of the plots of scaling: means with intervals, the fitted curve, and the marks that lie within it."""

from __future__ import annotations

import pytest

from leadline.analysis.scaling import fit
from leadline.report.scaling_plots import scaling_plots


def test_time_is_drawn_in_one_unit_with_means_and_the_fitted_line() -> None:
    known = [(1.0, 2.0), (1.0, 4.0), (4.0, 12.0), (16.0, 48.0)]
    found = fit("connect_p99_ms", "ms", known, axis="clients.count")
    assert [(one.number, one.mean) for one in found.means] == [(1.0, 3.0), (4.0, 12.0), (16.0, 48.0)]
    assert found.means[0].low is not None and found.means[1].low is None
    [plot] = scaling_plots([found])
    assert (plot["unit"], plot["axis"], plot["fit"]) == ("µs", "clients", "clients ** 1.00")
    assert plot["means"][1] == [4.0, 12_000.0, None, None] and len(plot["points"]) == 4
    assert plot["curve"][0] == pytest.approx([1.0, 3_000.0]) and plot["curve"][-1] == pytest.approx([16.0, 48_000.0])
    assert plot["marks"] == []


def test_law_of_a_rate_is_its_curve_and_marks_lie_within_the_numbers() -> None:
    def rate(number: float) -> float:
        return 1000 * number / (1 + 0.05 * (number - 1) + 0.001 * number * (number - 1))

    [to_64] = scaling_plots([fit("requests_per_s", "1/s", [(n, rate(n)) for n in (1.0, 4.0, 8.0, 16.0, 32.0, 64.0)])])
    assert to_64["fit"] == "Universal Scalability Law"
    assert [mark["name"] for mark in to_64["marks"]] == ["knee 11.4", "peak 30.8"]
    [to_8] = scaling_plots([fit("requests_per_s", "1/s", [(n, rate(n)) for n in (1.0, 2.0, 4.0, 6.0, 8.0)])])
    assert to_8["marks"] == [], "beyond what was measured nothing is marked"


def test_two_numbers_make_no_plot() -> None:
    assert scaling_plots([fit("memory_bytes", "bytes", [(1.0, 2.0), (4.0, 8.0)])]) == []
