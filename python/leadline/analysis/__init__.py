"""Computes windows, metrics, verdicts and tables from recorded data. Pure: no I/O, no clock.

The same input gives the same findings. `analyse` reads a run's journal entries, `analyse_test` the data of one
measurement; `model` has the records that both return.
"""

from leadline.analysis.rows import result_rows
from leadline.analysis.run import analyse
from leadline.analysis.targets import judge, parse_targets
from leadline.analysis.test_analysis import analyse_test
from leadline.analysis.test_data import TestData
from leadline.analysis.test_spec import TestSpec

__all__ = ["TestData", "TestSpec", "analyse", "analyse_test", "judge", "parse_targets", "result_rows"]
