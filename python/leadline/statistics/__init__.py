"""Statistics as pure functions: arrays of numbers in, small records out. No I/O, no clock, no knowledge of tests.

Every function states its units, its method with the source, and the coverage or error rate that was measured for it;
`tests/unit/statistics` measures them again, and compares what libraries have too with theirs. Where data cannot decide,
a bound is None with the reason.
"""

from leadline.statistics.changes import ChangePoint, change_points
from leadline.statistics.decision import Decision, decide
from leadline.statistics.estimate import Estimate, t_quantile
from leadline.statistics.growth import Growth, PowerLaw, power_law
from leadline.statistics.lines import Line, line
from leadline.statistics.means import (
    lengthening,
    mean_of_repeats,
    mean_of_series,
    neighbours_correlation,
    no_narrower_than_parts,
)
from leadline.statistics.quantiles import (
    count_beside_bursts,
    independent_count,
    level_correlation,
    quantile_of_buckets,
    quantile_of_values,
)
from leadline.statistics.ratios import Comparison, compare, ratio_of_estimates, ratio_of_means, with_slow_changes
from leadline.statistics.scalability import Scalability, scalability
from leadline.statistics.shares import share_of_counts, share_of_total, total_of_none
from leadline.statistics.slow_shifts import SlowShift, slow_loss
from leadline.statistics.stopping import stopping_confidence
from leadline.statistics.truncation import Truncation, warm_up_end

__all__ = [
    "ChangePoint",
    "Comparison",
    "Decision",
    "Estimate",
    "Growth",
    "Line",
    "PowerLaw",
    "Scalability",
    "SlowShift",
    "Truncation",
    "change_points",
    "compare",
    "count_beside_bursts",
    "decide",
    "independent_count",
    "lengthening",
    "level_correlation",
    "line",
    "mean_of_repeats",
    "mean_of_series",
    "neighbours_correlation",
    "no_narrower_than_parts",
    "power_law",
    "quantile_of_buckets",
    "quantile_of_values",
    "ratio_of_estimates",
    "ratio_of_means",
    "scalability",
    "share_of_counts",
    "share_of_total",
    "slow_loss",
    "stopping_confidence",
    "t_quantile",
    "total_of_none",
    "warm_up_end",
    "with_slow_changes",
]
