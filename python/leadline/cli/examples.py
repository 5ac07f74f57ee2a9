"""The examples that Leadline brings along: plans, and the files that they name. Finds them; runs nothing."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from leadline.errors import InputError

_PACKAGE = Path(__file__).resolve().parent.parent
# In a wheel, beside the package's modules; in the source tree, in a folder of their own.
_FOLDERS = (_PACKAGE / "examples", _PACKAGE.parent.parent / "examples")
# Scenarios and data of scenarios lie beside the plans.
_IS_PLAN = re.compile(r"^(sut|axes):", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ExamplePlan:
    """A plan that Leadline brings along."""

    name: str
    path: Path
    text: str

    @property
    def summary(self) -> str:
        """The first sentence of its header, on one line."""
        header = re.match(r"(#.*\n)+", self.text)
        assert header is not None, "each example begins with what it is"
        words = " ".join(line.lstrip("# ").strip() for line in header[0].splitlines())
        return re.split(r"(?<=[?])\s|[.:](?:\s|$)", words)[0]


def example_plans() -> list[ExamplePlan]:
    """All of them, by name."""
    folder = next((one for one in _FOLDERS if one.is_dir()), _FOLDERS[0])
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))}
    return [ExamplePlan(path.stem, path, text) for path, text in texts.items() if _IS_PLAN.search(text)]


def example_plan(name: str) -> ExamplePlan:
    """The example of this name, with or without its folder and `.yaml`.

    Raises:
        InputError: there is none.
    """
    plans = {plan.name: plan for plan in example_plans()}
    stem = Path(name).name.removesuffix(".yaml")
    if stem not in plans:
        near = difflib.get_close_matches(stem, plans, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(plans)}"
        raise InputError(f"--example {name}: there is no such example", hint=hint)
    return plans[stem]
