"""Links between the documents lead to a file, and to a heading where they name one; README leads to every page."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def links(document: Path) -> list[tuple[Path, str]]:
    """The target and the heading of each link inside the repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8"))
    split = [target.partition("#") for target in found if "://" not in target]
    return [((document.parent / path).resolve() if path else document, heading) for path, _, heading in split]


@cache
def headings(document: Path) -> set[str]:
    """The names of a document's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.S | re.M)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "") for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_a_file_and_a_heading(document: Path) -> None:
    lost = [str(target) for target, _ in links(document) if not target.exists()]
    lost += [
        f"{target.name}#{heading}"
        for target, heading in links(document)
        if heading and target in DOCUMENTS and heading not in headings(target)
    ]
    assert lost == []


def test_readme_leads_to_every_page() -> None:
    named = {target for target, _ in links(ROOT / "README.md")}
    pages = set((ROOT / "docs").glob("*.md"))
    assert pages - named == set()
