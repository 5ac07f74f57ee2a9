"""HAR files of each kind of source: order, overlap, pauses, bodies, what is not sent again, correlation."""

# ruff: noqa: E501 (a file's part is one line)

from __future__ import annotations

from typing import Any

import pytest
from har_texts import entry, har

from leadline.errors import PlanError
from leadline.plan.source import plain
from leadline.scenario.conversion import Conversion
from leadline.scenario.formats import FormatOptions, read_scenario
from leadline.scenario.har import read_har
from leadline.scenario.native import checked, read_native
from leadline.scenario.native_writer import write_native


def header(**values: str) -> list[dict[str, str]]:
    return [{"name": name.replace("_", "-"), "value": value} for name, value in values.items()]


def converted(content: bytes, **options: Any) -> tuple[dict[str, Any], Conversion]:
    root, conversion = read_har(content, "a.har", **options)
    checked(root)
    assert plain(read_native(write_native(root, conversion), "a.yaml").root) == plain(root)
    return plain(root), conversion


def test_pages_are_transactions_and_overlap_is_parallel() -> None:
    document, _ = converted(
        har(
            entry("http://a.test/", "00.000", 100, pageref="p1"),
            entry("http://a.test/1.css", "00.110", 50, pageref="p1"),
            entry("http://a.test/2.js", "00.120", 20, pageref="p1"),
            entry("http://a.test/next", "02.160", 10, pageref="p2"),
            pages=[{"id": "p1", "title": "Home"}, {"id": "p2"}],
        )
    )
    assert document["base"] == "http://a.test"
    assert document["flow"] == [
        {
            "transaction": "Home",
            "steps": [
                {"get": "/", "name": "GET /"},
                {"wait": "10ms"},
                {"parallel": [{"get": "/1.css", "name": "GET /1.css"}, {"get": "/2.js", "name": "GET /2.js"}]},
            ],
        },
        {"wait": "2s"},
        {"transaction": "p2", "steps": [{"get": "/next", "name": "GET /next"}]},
    ]


def test_as_many_are_outstanding_as_in_the_file() -> None:
    document, conversion = converted(
        har(
            entry("http://a.test/1", "00.000", 100),
            entry("http://a.test/2", "00.010", 20),
            # Wanted early, but sent when the second one had ended.
            entry("http://a.test/3", "00.010", 40, timings={"blocked": 25}),
        )
    )
    (step,) = document["flow"]
    assert [one["get"] for one in step["parallel"]] == ["/1", "/2", "/3"]
    assert step["connections"] == 2
    assert [item.why for item in conversion.items if item.outcome == "changed"] == [
        "they begin up to 15 ms earlier than in the file: each begins when it may, without a pause of its own"
    ]


def test_begins_that_differ_from_the_file_are_listed() -> None:
    def listed(*entries: dict[str, Any]) -> list[str]:
        _, conversion = converted(har(*entries))
        return [item.why.partition(":")[0] for item in conversion.items if item.outcome == "changed"]

    first = entry("http://a.test/1", "00.000", 100)
    assert listed(first, entry("http://a.test/2", "00.000", 100)) == []
    staggered = listed(first, entry("http://a.test/2", "00.050", 100))
    assert staggered == ["they begin up to 50 ms earlier than in the file"]
    # The third waits for the second, the fourth for the first.
    later = entry("http://a.test/3", "00.010", 100), entry("http://a.test/4", "00.105", 10)
    assert listed(first, entry("http://a.test/2", "00.000", 5), *later) == [
        "they begin up to 5 ms earlier than in the file"
    ]


def test_overlap_that_cannot_be_kept_is_listed() -> None:
    several = [entry(f"http://a.test/{number}", f"00.{number:03}", 500) for number in range(8)]
    document, conversion = converted(har(*several))
    assert document["flow"][0]["connections"] == 8
    assert "--connections-per-user 8" in conversion.items[-1].why
    staggered = [entry(f"http://a.test/{number}", f"00.{number * 60:03}", 100) for number in range(3)]
    document, conversion = converted(har(*staggered))
    assert document["flow"][0]["connections"] == 2
    assert conversion.items[-1].why == "1 overlaps differ: each begins as soon as fewer than 2 are outstanding"


def test_a_request_waits_for_the_answer_whose_value_it_sends() -> None:
    gives = {"content": {"text": '{"token": "abc123def456"}'}}
    document, conversion = converted(
        har(
            entry("http://a.test/slow", "00.000", 500),
            entry("http://a.test/token", "00.010", 20, response=gives),
            entry("http://a.test/me?t=abc123def456", "00.100", 20),
        )
    )
    together, me = document["flow"]
    assert [one["get"] for one in together["parallel"]] == ["/slow", "/token"]
    assert me["get"] == "/me?t=${token}"
    assert any("it sends what entry 2 gives" in item.why for item in conversion.items)


def test_entries_are_sorted_and_those_without_a_page_stay_on_the_open_one() -> None:
    late, early = entry("http://a.test/b", "01.000"), entry("http://a.test/a", "00.000", pageref="p")
    document, _ = converted(har(late, early))
    assert [step.get("get") for step in document["flow"][0]["steps"]] == ["/a", None, "/b"]


def test_cookies_validators_and_pseudo_headers_are_not_sent_again() -> None:
    sent = header(Cookie="a=1", If_None_Match='"x"', Accept="text/html", Host="a.test", Content_Length="3")
    document, _ = converted(har(entry("http://a.test/", headers=[{"name": ":path", "value": "/"}, *sent])))
    assert document["http"]["headers"] == {"Accept": "text/html"}
    assert "cookies" not in document["http"]


def test_codings_are_the_recorded_ones_except_where_values_are_taken_from_the_body() -> None:
    codings = header(Accept_Encoding="gzip, deflate, br;q=0.9, zstd")
    document, conversion = converted(
        har(
            entry(
                "http://a.test/token",
                "00.000",
                headers=codings,
                response={"content": {"text": '{"t": "abcdef123456"}'}},
            ),
            entry("http://a.test/x?t=abcdef123456", "01.000", headers=codings),
        )
    )
    first, second = (step for step in document["flow"] if "get" in step)
    assert first["headers"] == {"Accept-Encoding": "gzip, deflate"}
    assert second["headers"] == {"Accept-Encoding": "gzip, deflate, br;q=0.9, zstd"}
    assert [item.what for item in conversion.items if item.what.startswith("Accept")] == [
        "Accept-Encoding br;q=0.9", "Accept-Encoding zstd",
    ]  # fmt: skip


def test_a_redirect_is_followed_once() -> None:
    first = entry("http://a.test/old", "00.000", status=302, response={"redirectURL": "/new"})
    document, conversion = converted(
        har(first, entry("http://a.test/new", "00.020"), entry("http://a.test/new", "05.000"))
    )
    assert [step.get("get") for step in document["flow"]] == ["/old", None, "/new"]
    assert [item.why for item in conversion.items if item.outcome == "dropped"] == ["a redirect that is followed"]


def test_a_redirect_has_the_time_and_the_values_of_its_last_answer() -> None:
    page = '<input type="hidden" name="csrf" value="0a1b2c3d4e5f">'
    cookie = header(Set_Cookie="XSRF=a1%2Fb2c3d4e; Path=/")
    document, _ = converted(
        har(
            entry("http://a.test/login", "00.000", 10, method="POST", status=302, gives=cookie,
                  response={"redirectURL": "/home?sid=9z8y7x6w5v"}),
            entry("http://a.test/home?sid=9z8y7x6w5v", "00.010", 90, response={"content": {"text": page}}),
            entry("http://a.test/go?s=9z8y7x6w5v&c=0a1b2c3d4e5f", "00.130", headers=header(X_XSRF="a1/b2c3d4e")),
        )
    )  # fmt: skip
    login, pause, go = document["flow"]
    assert pause == {"wait": "30ms"}
    assert login["extract"]["sid"] == {"regex": r"[?&]sid=([^&#\s]+)", "from": "url"}
    assert login["extract"]["xsrf"] == {"cookie": "XSRF"}
    assert go["get"] == "/go?s=${sid}&c=${csrf}"
    assert go["headers"] == {"X-XSRF": "${url_decode(xsrf)}"}


@pytest.mark.parametrize(
    ("data", "native"),
    [
        ({"mimeType": "application/json", "text": '{"a": "${x}"}'}, {"body": '{"a": "$${x}"}', "type": "application/json"}),
        ({"mimeType": "application/x-www-form-urlencoded; charset=UTF-8", "text": "a=1&b=x%20y"}, {"form": {"a": "1", "b": "x y"}}),
        ({"mimeType": "application/x-www-form-urlencoded", "params": [{"name": "a", "value": "x%20y"}]}, {"form": {"a": "x y"}}),
        ({"mimeType": "multipart/form-data", "params": [{"name": "f", "value": "v", "fileName": "f.txt"}]}, {"multipart": [{"name": "f", "value": "v", "file_name": "f.txt"}]}),
        ({"mimeType": "text/plain", "text": "aGk=", "encoding": "base64"}, {"body": "hi", "type": "text/plain"}),
        ({"mimeType": "", "text": ""}, {}),
    ],
)  # fmt: skip
def test_body_of_a_recorded_request_is_a_form_parts_or_text(data: dict[str, Any], native: dict[str, Any]) -> None:
    document, _ = converted(har(entry("http://a.test/", method="POST", request={"postData": data})))
    (step,) = document["flow"]
    expected = {"post": "/", "name": "POST /", **{key: value for key, value in native.items() if key != "type"}}
    assert step == expected
    assert document.get("http", {}).get("headers", {}).get("Content-Type") == native.get("type")


def test_a_token_of_json_is_taken_from_its_answer() -> None:
    gives = {"content": {"text": '{"data": {"token": "abc123def456"}, "n": 1}', "mimeType": "application/json"}}
    content = har(
        entry("http://a.test/login", "00.000", method="POST", response=gives),
        entry("http://a.test/me?t=abc123def456", "01.000", headers=header(Authorization="Bearer abc123def456")),
    )
    document, conversion = converted(content)
    login, _, me = document["flow"]
    assert login["extract"] == {"token": {"json": "$.data.token"}}
    assert me["get"] == "/me?t=${token}"
    assert me["headers"]["Authorization"] == "Bearer ${token}"
    assert any("token is taken from its answer" in item.why for item in conversion.items)
    document, _ = converted(content, correlates=False)
    assert "extract" not in document["flow"][0]


def test_a_hidden_field_and_a_location_are_correlated() -> None:
    page = '<form><input type="hidden" name="csrf" value="0a1b2c3d4e5f"></form>'
    content = har(
        entry(
            "http://a.test/form",
            "00.000",
            response={"content": {"text": page}},
            gives=header(Location="/go?sid=9z8y7x6w5v"),
        ),
        entry(
            "http://a.test/go?sid=9z8y7x6w5v",
            "01.000",
            method="POST",
            request={"postData": {"mimeType": "application/x-www-form-urlencoded", "text": "csrf=0a1b2c3d4e5f"}},
        ),
    )
    document, _ = converted(content)
    assert set(document["flow"][0]["extract"]) == {"csrf", "sid"}
    assert document["flow"][2]["form"] == {"csrf": "${csrf}"}
    assert document["flow"][2]["post"] == "/go?sid=${sid}"


def test_a_value_that_was_sent_before_it_was_given_is_no_token() -> None:
    gives = {"content": {"text": '{"id": "abc123def456"}'}}
    document, _ = converted(
        har(
            entry("http://a.test/x?id=abc123def456", "00.000", response=gives),
            entry("http://a.test/y?id=abc123def456", "01.000"),
        )
    )
    assert "extract" not in document["flow"][0]


def test_hosts_websockets_and_failures() -> None:
    content = har(
        entry("http://a.test/"),
        entry("http://other.test/", "01.000"),
        entry("ws://a.test/socket", "02.000"),
        entry("data:text/plain,hi", "03.000"),
        entry("http://a.test/gone", "04.000", status=404),
        entry("http://a.test/failed", "05.000", status=0),
    )
    document, conversion = converted(content, only_hosts=["a.test"])
    assert [step["get"] for step in document["flow"] if "get" in step] == ["/", "/gone", "/failed"]
    assert document["flow"][2]["ok"] == "200-399,404"
    assert conversion.counts() == {"kept": 3, "changed": 2, "dropped": 3, "cannot-run": 0}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a HAR file"),
        (b'{"log": {}}', "not a HAR file"),
        (b'{"log": {"entries": []}}', "no entry of it can be sent"),
        (b"[" * 100_000, "not JSON: nested too deeply"),
        (b"\xff", "UTF-8"),
    ],
)
def test_files_that_are_no_har_are_named(content: bytes, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        read_har(content, "a.har")


def _flow(content: bytes, **options: Any) -> tuple[list[dict[str, Any]], dict[str, Any], Conversion]:
    """Requests without the pauses between them, the scenario, and the report."""
    root, conversion = read_har(content, "shop.har", **options)
    checked(root)
    document = plain(root)
    return [step for step in document["flow"] if "wait" not in step], document, conversion


def test_redirects_to_other_hosts_than_the_wanted_ones_are_not_followed() -> None:
    """A sign-on at another host: what it leads back to is a request of its own, and only once."""
    steps, document, _ = _flow(
        har(
            entry("http://a.test/go", "01.000", status=302, gives=[{"name": "Location", "value": "http://b.test/l"}]),
            entry(
                "http://b.test/l", "01.020", status=302, gives=[{"name": "Location", "value": "http://a.test/b?c=1"}]
            ),
            entry("http://a.test/b?c=1", "01.040"),
            entry("http://a.test/spa", "02.000", status=302, gives=[{"name": "Location", "value": "/#/home"}]),
            entry("http://a.test/", "02.020"),
        ),
        only_hosts=["a.test"],
    )
    assert [(step["get"], step.get("follow")) for step in steps] == [("/go", 0), ("/b?c=1", None), ("/spa", None)]
    assert document["targets"] == ["http://a.test", "https://a.test"]


def test_a_visit_long_after_a_redirect_is_a_visit() -> None:
    gives = [{"name": "Location", "value": "/home"}]
    steps, _, _ = _flow(
        har(
            entry("http://a.test/out", "01.000", status=302, gives=gives),
            entry("http://a.test/home", "09.000"),
            entry("http://a.test/out", "20.000", status=302, gives=gives),
            entry("http://a.test/home", "20.015"),
        )
    )
    assert [step["get"] for step in steps] == ["/out", "/home", "/out"]


def test_entries_from_the_browsers_cache_are_not_sent() -> None:
    steps, _, conversion = _flow(har(entry("http://a.test/p"), entry("http://a.test/i", "02.000", _fromCache="disk")))
    assert [step["get"] for step in steps] == ["/p"]
    assert [item.why for item in conversion.items if item.outcome == "dropped"] == [
        "from the browser's cache (disk): it was not sent"
    ]


@pytest.mark.parametrize(
    ("data", "native"),
    [
        ({"mimeType": "application/x-www-form-urlencoded", "text": "name=caf%E9&b=1"}, {"body": "name=caf%E9&b=1"}),
        (
            {"mimeType": "application/x-www-form-urlencoded", "params": [{"name": "sum", "value": "1+1"}]},
            {"form": {"sum": "1+1"}},
        ),
        (
            {"mimeType": "application/x-www-form-urlencoded", "params": [{"name": "a", "value": "1%2B1+x"}]},
            {"form": {"a": "1+1 x"}},
        ),
        (
            {"mimeType": "application/x-protobuf", "text": "CgVoZWxsb/8=", "encoding": "base64"},
            {"body_base64": "CgVoZWxsb/8="},
        ),
        (
            {
                "mimeType": "multipart/form-data; boundary=--B",
                "text": '----B\r\nContent-Disposition: form-data; name="f"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\nhel\r\nlo'
                '\r\n----B\r\nContent-Disposition: form-data; name="g"\r\n\r\n1\r\n----B--\r\n',
                "params": [{"name": "f", "value": "", "fileName": "a.txt"}],
            },
            {
                "multipart": [
                    {"name": "f", "value": "hel\r\nlo", "file_name": "a.txt", "type": "text/plain"},
                    {"name": "g", "value": "1"},
                ]
            },
        ),
    ],
)
def test_bodies_keep_their_bytes(data: dict[str, Any], native: dict[str, Any]) -> None:
    (step,), _, _ = _flow(har(entry("http://a.test/x", method="POST", request={"postData": data})))
    assert {key: step[key] for key in native} == native


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            har(entry("data:text/plain,x"), entry("data:text/plain,y")),
            "no entry of it can be sent: 2 x a URL in the page itself",
        ),
        (
            har({"request": {"method": "GET", "url": "http://a.test/"}}),
            "no entry of it can be sent: 1 x it has no time",
        ),
        (har(), "no entry of it can be sent: it has no entries"),
    ],
)
def test_a_file_without_a_request_says_why(content: bytes, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        read_har(content, "shop.har")


def test_jsonp_is_named() -> None:
    with pytest.raises(PlanError, match="this is JSONP"):
        read_scenario(b"onInputData(" + har(entry("http://a.test/")) + b");", "shop.har", FormatOptions())
