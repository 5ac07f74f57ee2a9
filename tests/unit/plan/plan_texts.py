"""For tests of plans: text to plan, text to error, in files of the test's own folder; and the published schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from leadline.errors import PlanError
from leadline.plan import Plan, load_plan, plan_schema


@cache
def plan_validator() -> jsonschema.Draft202012Validator:
    """The schema, made once: that takes as long as hundreds of validations."""
    return jsonschema.Draft202012Validator(plan_schema())


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Plan]:
    """Load a plan from its text."""

    def load_text(text: str, *overrides: str) -> Plan:
        path = tmp_path / "plan.yaml"
        path.write_text(text, encoding="utf-8")
        return load_plan(path, overrides)

    return load_text


@pytest.fixture
def error_text(load: Callable[..., Plan], tmp_path: Path) -> Callable[..., str]:
    """The one error about a plan's text, with the file's folder cut off."""

    def complain(text: str, *overrides: str) -> str:
        with pytest.raises(PlanError) as raised:
            load(text, *overrides)
        assert raised.value.exit_code == 2
        assert [str(other) for other in raised.value.others] == [], "one mistake is one error"
        assert "\n" not in str(raised.value)
        return str(raised.value).replace(f"{tmp_path}/", "")

    return complain
