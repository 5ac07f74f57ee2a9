"""Puts results that have the same reason together: one text, with the range of each figure that differs.

Two reasons are the same if their code, their verdict and their words are, hosts included; only numbers may differ, and
figures that are too many to name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leadline.analysis.model import Reason, Summary, Verdict
from leadline.analysis.scope import follows_from_rate
from leadline.report import verdicts

# Figures that a line names.
MOST_METRICS = 3
# A number by itself: no part of a name (client1, c01/2) or of an address.
_NUMBER = re.compile(r"(?<![\w.,/:-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w/:]|[.,]\d)")
_SOME_REPEATS = re.compile(r" \(in \d+ of \d+ repeats\)$")


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """A reason, and the results that have it."""

    code: str
    """Empty for results that have a verdict without a reason."""
    verdict: Verdict | None
    text: str
    """`60 to 91 % of one CPU` where the figures differ."""
    metrics: tuple[str, ...]
    """The figures that it concerns; empty where it concerns all of them, or too many to name."""
    results: tuple[Summary, ...]


def named_figures(metrics: Sequence[str]) -> tuple[str, ...]:
    """The figures of a reason, without those that only follow from a rate; none where they are too many to name."""
    leading = tuple(name for name in metrics if not follows_from_rate(name))
    return leading if len(leading) <= MOST_METRICS else ()


def reason_groups(results: Iterable[Summary]) -> list[ReasonGroup]:
    """The reasons of these results in the order of their first result, each once."""
    found: dict[tuple[str, Verdict | None, tuple[str, ...], str], list[tuple[Summary, str]]] = {}
    for one in results:
        verdict = one.validity.verdict
        for reason in one.validity.reasons or (Reason("", verdicts.WORDINGS[verdict].sentence),):
            said = reason.verdict or (verdict if len(one.validity.reasons) < 2 else None)
            named = named_figures(reason.metrics)
            key = (reason.code, said, named, _NUMBER.sub("#", _SOME_REPEATS.sub("", reason.text)))
            found.setdefault(key, []).append((one, reason.text))
    return [
        ReasonGroup(code, said, _joined([text for _, text in pairs]), metrics, tuple(one for one, _ in pairs))
        for (code, said, metrics, _), pairs in found.items()
    ]


def _joined(texts: Sequence[str]) -> str:
    """Texts that differ in their numbers only as one, with the smallest and the largest of each number."""
    if len(set(texts)) == 1:
        return texts[0]
    whole = [_SOME_REPEATS.sub("", text) for text in texts]
    columns = zip(*(_NUMBER.findall(text) for text in whole), strict=True)
    ranges = iter([_range(column) for column in columns])
    return _NUMBER.sub(lambda _: next(ranges), whole[0])


def _range(numbers: Sequence[str]) -> str:
    low, high = (choose(numbers, key=lambda number: float(number.replace(",", ""))) for choose in (min, max))
    return low if low == high else f"{low} to {high}"
