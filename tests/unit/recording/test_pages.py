"""Pages of a recording: which requests begin one, and which belong to it."""

from __future__ import annotations

from typing import Any

from leadline.recording.pages import MIN_PAUSE_S, assign_pages, read_row

HTML = "text/html; charset=utf-8"


def entry(
    url: str, media_type: str = HTML, text: str = "", *, method: str = "GET", location: str = "", **sent: str
) -> dict[str, Any]:
    """An entry of a HAR file with what pages depend on."""
    headers = [{"name": name.replace("_", "-"), "value": value} for name, value in sent.items()]
    return {
        "request": {"method": method, "url": f"http://shop.test{url}", "headers": headers},
        "response": {
            "status": 302 if location else 200,
            "redirectURL": location,
            "content": {"mimeType": media_type, "text": text},
        },
    }


def pages_of(*entries: dict[str, Any], pauses_s: tuple[float, ...] = ()) -> list[str | None]:
    """The title of each entry's page; each begins 0.2 s after the one before, and takes 0.1 s."""
    rows, at_s = [], 0.0
    for index, one in enumerate(entries):
        at_s += pauses_s[index] if index < len(pauses_s) else 0.0
        rows.append(read_row(at_s, at_s + 0.1, one))
        at_s += 0.2
    return [None if page is None else page.title for page in assign_pages(rows)[1]]


def document(url: str, title: str, **more: str) -> dict[str, Any]:
    """A page that a browser navigates to."""
    head = f"<title>{title}</title>" if title else ""
    return entry(url, HTML, f"<html><head>{head}</head>", sec_fetch_dest="document", **more)


def test_document_begins_a_page_and_all_else_belongs_to_the_newest() -> None:
    picture = entry("/p.png", "image/png", sec_fetch_dest="image", referer="http://shop.test/")
    frame = entry("/frame", HTML, "<title>Frame</title>", sec_fetch_dest="iframe")
    found = pages_of(picture, document("/", "Home"), picture, frame, document("/cart", "Cart &amp; more"), picture)
    assert found == [None, "Home", "Home", "Home", "Cart & more", "Cart & more"]


def test_redirects_belong_to_the_page_that_they_lead_to() -> None:
    posted = document("/login", "", method="POST", location="/home")
    assert pages_of(document("/", "Log in"), posted, document("/home", "Home")) == ["Log in", "Home", "Home"]


def test_without_a_browsers_headers_html_is_a_page() -> None:
    posted = entry("/login", "text/plain", method="POST", location="/home")
    api = entry("/api", "application/json")
    fragment = entry("/part", HTML, x_requested_with="XMLHttpRequest")
    found = pages_of(posted, entry("/home", HTML, "<title>Home</title>"), api, fragment)
    assert found == ["Home", "Home", "Home", "Home"]


def test_later_visit_of_a_redirects_target_is_a_page_of_its_own() -> None:
    posted = document("/login", "", method="POST", location="/home")
    found = pages_of(posted, document("/home", "Home"), pauses_s=(0, 3))
    assert found == ["POST /login", "Home"]


def test_prefetched_document_is_no_page() -> None:
    assert pages_of(document("/", "Home"), document("/next", "Next", sec_purpose="prefetch")) == ["Home", "Home"]


def test_pause_on_a_page_that_stays_begins_one_named_by_its_request() -> None:
    call = entry("/api/cart", "application/json", method="POST", sec_fetch_dest="empty")
    found = pages_of(document("/", "Shop"), call, call, call, pauses_s=(0, 0, MIN_PAUSE_S + 0.1))
    assert found == ["Shop", "Shop", "POST /api/cart", "POST /api/cart"]


def test_pages_of_one_title_and_two_paths_have_the_path_in_their_names() -> None:
    found = pages_of(document("/a", "Shop"), document("/b", "Shop"), document("/a", "Shop"), document("/c", ""))
    assert found == ["Shop (GET /a)", "Shop (GET /b)", "Shop (GET /a)", "GET /c"]


def test_title_has_nothing_that_a_terminal_would_obey() -> None:
    assert pages_of(document("/", "A\x1b[2J &#27;[31m\n b")) == ["A [2J [31m b"]
