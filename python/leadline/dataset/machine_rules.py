"""The switch of the rules that judge the machine instead of what was measured on it. `analysis`, which reads no
environment itself, applies it; read `analysis/machine_rules.py` first."""

from __future__ import annotations

import os

MACHINE_RULES_VARIABLE = "LEADLINE_MACHINE_RULES"
OFF = "off"


def are_machine_rules_off() -> bool:
    """Whether figures are judged as if the machine had been quiet. For tests of real loads beside other work: their
    counts and their order are true there, and how quiet it is says nothing of the code under test."""
    return os.environ.get(MACHINE_RULES_VARIABLE) == OFF
