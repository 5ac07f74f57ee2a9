"""How figures grow, as a terminal shows it: units of what is held, and notes that are about all of them."""

from __future__ import annotations

from rich.console import Console

from leadline.analysis.scaling import fit
from leadline.report import scaling_table
from leadline.report.scalings import notes_of


def shown(*metrics: tuple[str, str], notes: tuple[str, ...] = ()) -> str:
    scalings = [fit(name, unit, [(50.0, 2.0**20), (100.0, 2.0**21), (200.0, 2.0**22)], notes) for name, unit in metrics]
    console = Console(width=120, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(scaling_table(scalings, "clients"))
    return capture.get()


def test_memory_is_in_the_units_of_the_summary() -> None:
    text = shown(("memory_bytes", "bytes"))
    assert "1.00 MiB" in text and "4.00 MiB" in text and "MB" not in text


def test_a_note_about_all_figures_names_none() -> None:
    left_out = "1 point is left out: at 800 the generator was the limit"
    lines = [
        line.strip() for line in shown(("connect_p50_ms", "ms"), ("server_cpu_s", "s"), notes=(left_out,)).split("\n")
    ]
    assert left_out in lines
    one = fit("connect_p50_ms", "ms", [(50.0, 1.0), (100.0, None)], (left_out,))
    other = fit("server_cpu_s", "s", [(50.0, 1.0), (100.0, 2.0)], (left_out,))
    assert notes_of([one, other])["1 points have no figure and are left out"] == ["connect p50"]
