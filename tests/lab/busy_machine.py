"""Verdicts of tests in which the machine itself may be what limits: the load's own threads wait for a CPU that other
programs use. That is then the true answer, and the one that a test made on purpose cannot be seen."""

from __future__ import annotations

from typing import Any

import pytest


def limit_by(document: dict[str, Any]) -> str:
    """What limited one test. Skips it if that is, or may be, that the load's own threads waited for a CPU."""
    limit = document["limit"]
    evidence = limit["evidence"] or ""
    if "waited for a CPU" in evidence and ("on this host" in evidence or limit["by"] == "not known"):
        pytest.skip(f"the machine is busy: {evidence}")
    return str(limit["by"])
