"""Flame graphs in a run's folder: draws them from the journal's profiles, and lists them for the page's links."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from leadline.agents.flamegraph import flame_graph
from leadline.analysis.model import RunAnalysis
from leadline.dataset import Entry, RunFolder
from leadline.dataset.atomic import replace
from leadline.errors import DatasetError, LeadlineError


def draw_flame_graph(folder: RunFolder, entry: Entry) -> None:
    """Draw the profile in this entry of the journal, unless it is not a profile or already drawn.

    Raises:
        DatasetError: it cannot be drawn or written.
    """
    event = entry.get("event")
    if not isinstance(event, dict) or event.get("type") != "profiled" or not event.get("folded"):
        return
    test, host = str(event.get("trial")), str(entry.get("host"))
    path = _picture(folder, test, host)
    if path.exists():
        return
    try:
        svg = flame_graph(f"{test} on {host}", event["folded"])
        path.parent.mkdir(exist_ok=True)
    except (LeadlineError, OSError) as error:
        raise DatasetError(f"{path.name} cannot be drawn: {error}") from error
    replace(path, partial(Path.write_text, data=svg, encoding="utf-8"))


def drawn_flame_graphs(folder: RunFolder, analysis: RunAnalysis) -> dict[str, list[tuple[str, str]]]:
    """The pictures by test, as in "c01/1/tcp-up": each host with one, and its path in the folder."""
    if not folder.profiles_path.is_dir():
        return {}
    tests = [f"{trial.trial}/{test.test}" for trial in analysis.trials for test in trial.tests]
    found: dict[str, list[tuple[str, str]]] = {}
    for test in tests:
        for host in analysis.hosts:
            path = _picture(folder, test, host)
            if path.exists():
                found.setdefault(test, []).append((host, f"{path.parent.name}/{path.name}"))
    return found


def _picture(folder: RunFolder, test: str, host: str) -> Path:
    return folder.profiles_path / f"{test}-{host}.svg".replace("/", "-")
