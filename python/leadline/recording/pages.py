"""Which requests of a recording belong to one page, as a proxy can see it. Pure.

A page begins with a document that was navigated to: a browser says so (`Sec-Fetch-Dest`), and without that header an
answer of HTML is one. Redirects belong to the page that they lead to. Every other request belongs to the newest page,
also one that an older page still sends: pages become transactions, which follow one another. Where a page stays and a
user acts (an application of one page), a pause of `MIN_PAUSE_S` without requests begins a new one, as in other
recorders. Requests before the first document have no page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

MIN_PAUSE_S = 5.0
MAX_REDIRECT_GAP_S = 2.0
"""From the end of an answer that redirects to the request that follows it."""
_MAX_TITLE = 80
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,1000})</title", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of an entry without its bodies."""

    start_s: float
    end_s: float
    method: str
    url: str
    destination: str
    """`Sec-Fetch-Dest`; empty if the client sends none."""
    may_be_document: bool
    """Whether nothing in the request says that a script or a prefetch sent it."""
    media_type: str
    target: str
    """The URL that the answer redirects to; empty if it does not."""
    title: str
    """Of the document; empty if it has none."""


@dataclass(slots=True)
class Page:
    """A page of a HAR file."""

    name: str
    """Its identifier in the file."""
    start_s: float
    title: str
    path: str
    end_s: float
    """When its last answer until now had ended."""


def read_row(start_s: float, end_s: float, entry: dict[str, Any]) -> Row:
    """What an entry's page depends on."""
    request, response = entry["request"], entry["response"]
    sent = {one["name"].lower(): one["value"] for one in request["headers"]}
    content = response["content"]
    media_type = content.get("mimeType", "").partition(";")[0].strip().lower()
    is_html = media_type in ("text/html", "application/xhtml+xml")
    found = _TITLE.search(content.get("text", "")[:65_536]) if is_html and "encoding" not in content else None
    target = response["redirectURL"] if response["status"] in _REDIRECTS else ""
    return Row(
        start_s,
        end_s,
        request["method"],
        urldefrag(request["url"]).url,
        sent.get("sec-fetch-dest", ""),
        _may_be_document(request["method"], sent),
        media_type if response["status"] else "",
        _joined(request["url"], target),
        _title(found[1]) if found else "",
    )


def _title(text: str) -> str:
    """A title on one line, without what a terminal would obey."""
    shown = "".join(character if character.isprintable() else " " for character in html.unescape(text))
    return " ".join(shown.split())[:_MAX_TITLE]


def _may_be_document(method: str, sent: dict[str, str]) -> bool:
    accepts = sent.get("accept", "*/*").lower()
    return (
        method in ("GET", "POST")
        and not {"x-requested-with", "purpose", "sec-purpose", "upgrade"} & sent.keys()
        and ("text/html" in accepts or "*/*" in accepts)
    )


def _joined(url: str, target: str) -> str:
    try:
        return urldefrag(urljoin(url, target)).url if target else ""
    except ValueError:
        return ""


def is_document(row: Row) -> bool:
    """Whether an entry by itself begins a page."""
    if row.destination:
        return row.destination == "document" and row.may_be_document
    return row.may_be_document and row.media_type in ("text/html", "application/xhtml+xml") and not row.target


def assign_pages(rows: Sequence[Row]) -> tuple[list[Page], list[Page | None]]:
    """All pages, and that of each entry; the entries are in order."""
    pages: list[Page] = []
    chains = _chains(rows)
    found: list[Page | None] = []
    for index, row in enumerate(rows):
        follows_redirect = chains[index] is not None
        if not follows_redirect and _begins_page(rows, chains, index):
            _begin(pages, row, rows[_end_of_chain(rows, chains, index)].title)
        elif not follows_redirect and pages and row.start_s - pages[-1].end_s >= MIN_PAUSE_S:
            _begin(pages, row, "")
        found.append(pages[-1] if pages else None)
        if pages:
            pages[-1].end_s = max(pages[-1].end_s, row.end_s)
    _distinguish(pages)
    return pages, found


def _chains(rows: Sequence[Row]) -> list[int | None]:
    """The index of the entry that redirected to each entry."""
    waiting: dict[str, list[int]] = {}
    found: list[int | None] = []
    for index, row in enumerate(rows):
        candidates = waiting.get(row.url, [])
        candidates[:] = [one for one in candidates if row.start_s - rows[one].end_s <= MAX_REDIRECT_GAP_S]
        found.append(candidates.pop(0) if candidates else None)
        if row.target:
            waiting.setdefault(row.target, []).append(index)
    return found


def _begins_page(rows: Sequence[Row], chains: Sequence[int | None], index: int) -> bool:
    return is_document(rows[index]) or (
        rows[index].may_be_document
        and not rows[index].destination
        and bool(rows[index].target)
        and is_document(rows[_end_of_chain(rows, chains, index)])
    )


def _end_of_chain(rows: Sequence[Row], chains: Sequence[int | None], index: int) -> int:
    """The entry that the redirects of an entry end with; itself if it has none."""
    for later in range(index + 1, len(rows)):
        if not rows[index].target or rows[later].start_s - rows[index].end_s > MAX_REDIRECT_GAP_S:
            break
        if chains[later] == index:
            index = later
    return index


def _begin(pages: list[Page], row: Row, title: str) -> None:
    path = f"{row.method} {urlsplit(row.url).path or '/'}"
    pages.append(Page(f"page_{len(pages) + 1}", row.start_s, title or path, path, row.end_s))


def _distinguish(pages: Sequence[Page]) -> None:
    """Give pages of one title and different paths names of their own: a transaction is known by its name."""
    paths: dict[str, set[str]] = {}
    for page in pages:
        paths.setdefault(page.title, set()).add(page.path)
    for page in pages:
        if len(paths[page.title]) > 1:
            page.title = f"{page.title} ({page.path})"
