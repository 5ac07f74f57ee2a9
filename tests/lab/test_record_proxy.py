"""`leadline record` with real parts: mitmproxy, curl and Chromium, and a shop that answers only those who send back
what it gave. What was recorded runs again, and the shop sees the same requests with tokens of their own.

mitmproxy is in an environment of its own, which `make test` installs: it holds other packages back.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from recorded_shop import CYRILLIC, LONG, PICTURE, RecordedShop, make_certificate, recorded_shop
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from in_process import leadline
from leadline.recording import trust
from leadline.recording.journal import is_being_written
from waiting import WITHIN_S, until

RECORDER = Path(__file__).resolve().parents[2] / ".venv-record" / "bin" / "leadline"
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(not RECORDER.exists(), reason="mitmproxy is not installed (make .venv-record/.installed)"),
    pytest.mark.agent,
    pytest.mark.takes(20),
]
VISIT = """set -eu
get() { curl -sS --compressed -b jar -c jar "$@"; }
csrf=$(get $BASE/ | sed -n 's/.*name="csrf" value="\\([0-9a-f]*\\)".*/\\1/p')
get -L -d user=ada --data-urlencode 'password=geheim &=+' -d csrf=$csrf $BASE/login > home
token=$(get $BASE/api/token | sed 's/.*: "\\(.*\\)".*/\\1/')
get -H "Authorization: Bearer $token" -H 'Content-Type: application/json' -d '{"item": 1}' $BASE/api/cart
get -H "Authorization: Bearer $token" -T upload $BASE/upload
get -H "Authorization: Bearer $token" -X DELETE -d 'all of it' $BASE/api/cart
get $BASE/cart > cart
get $BASE/picture.png > picture
get $BASE/long > long
"""
SEEN = [
    'GET / "" 200', 'POST /login {"user": "ada"} 302', 'GET /home "" 200', 'GET /api/token "" 200',
    'POST /api/cart "7c8f19f6" 200', 'PUT /upload "110009dc" 200', 'DELETE /api/cart "07630777" 200',
    'GET /cart "" 200', 'GET /picture.png "" 200', 'GET /long "" 200',
]  # fmt: skip
"""What the shop sees of a visit."""
ORDER = 'POST /api/cart "8a90f2b6" 200'
"""What it sees of the order of its own page."""


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The variables of a recorder whose data are in a folder of the test."""
    own = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**own, "XDG_DATA_HOME": str(folder / "data"), **more}


def record(folder: Path, *words: str | Path, base: str = "") -> subprocess.CompletedProcess[str]:
    """Run the recorder to its end."""
    argv = [RECORDER, "record", *words]
    variables = environment(folder, BASE=base)
    return subprocess.run(
        argv, cwd=folder, env=variables, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )


@contextmanager
def recorder(folder: Path, *words: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A recorder that listens, and its address."""
    argv = [RECORDER, "record", "--port", "0", *words]
    with subprocess.Popen(argv, cwd=folder, env=environment(folder), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            found = re.search(r"the proxy is (http://\S+);", line)
            assert found, line
            yield process, found[1]
        finally:
            process.kill()


def curl(*words: str | Path, folder: Path) -> int:
    """The exit code of curl."""
    argv = ["curl", "-sS", "--max-time", str(WITHIN_S), "--output", "answer", *words]
    return subprocess.run(argv, cwd=folder, env=environment(folder), stderr=subprocess.DEVNULL, check=False).returncode


def replay(shop: RecordedShop, file: Path, *words: str | Path) -> dict[str, Any]:
    """Run a recorded scenario, and check that the shop sees what it saw before."""
    shop.requests.clear()
    done = leadline("scenario", file, "--json", *words)
    assert done.returncode == 0, done.stderr
    assert shop.requests == SEEN
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def counts(found: dict[str, Any]) -> dict[str, int]:
    """How often each transaction and request ran."""
    return {one["name"]: one["ended"] for one in found["scenario"]["labels"]}


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RecordedShop, Path, Path]]:
    """A shop over TLS, the folder with the HAR file of a visit to it, and its authority."""
    folder = tmp_path_factory.mktemp("visited")
    certificate, authority = make_certificate(folder)
    (folder / "upload").write_bytes(PICTURE[:512])
    with recorded_shop(certificate) as shop:
        base = f"https://127.0.0.1:{shop.port}"
        words = ("-o", "shop.har", "--max-body", "100kB", "--ca", authority, "--", "bash", "-c", VISIT)
        done = record(folder, *words, base=base)
        assert done.returncode == 0 and shop.requests == SEEN, done.stderr
        assert "10 requests on 3 pages of 127.0.0.1: shop.har" in done.stderr
        yield shop, folder, authority


def read_entries(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries of the visit, by method and path."""
    log = json.loads((folder / "shop.har").read_text())["log"]
    return {
        f"{one['request']['method']} /{one['request']['url'].partition('://')[2].partition('/')[2]}": one
        for one in log["entries"]
    }


def test_visit_over_tls_runs_again_with_tokens_of_its_own(visited: tuple[RecordedShop, Path, Path]) -> None:
    shop, folder, authority = visited
    done = leadline("convert", folder / "shop.har", "-o", folder / "converted.yaml")
    assert done.returncode == 0, done.stderr
    found = replay(shop, folder / "converted.yaml", "--ca", authority)
    assert {"Log in": 1, "Home": 1, "Корзина": 1}.items() <= counts(found).items()


def test_plain_visit_becomes_a_scenario_and_other_hosts_pass_undecrypted(tmp_path: Path) -> None:
    """The other host's client trusts that server's own authority alone."""
    (tmp_path / "upload").write_bytes(PICTURE[:512])
    certificate, authority = make_certificate(tmp_path)
    with recorded_shop() as shop, recorded_shop(certificate) as other:
        script = f"{VISIT}curl -sS --cacert {authority} https://localhost:{other.port}/ > other"
        words = ("-o", "shop.yaml", "--only-host", "127.0.0.1", "--json", "--", "bash", "-c", script)
        done = record(tmp_path, *words, base=f"http://127.0.0.1:{shop.port}")
        assert done.returncode == 0 and shop.requests == SEEN and len(other.requests) == 1, done.stderr
        document = json.loads(done.stdout)
        assert (document["requests"], document["pages"]) == (10, ["Log in", "Home", "Корзина"])
        assert document["hosts"] == ["127.0.0.1"]
        assert document["conversion"]["counts"]["cannot-run"] == 0
        file = tmp_path / "shop.yaml"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert list((tmp_path / "data/leadline/record").glob("*.jsonl")) == [], "the journal is needed no more"
        replay(shop, file)


def test_bodies_are_decoded_and_lose_nothing(visited: tuple[RecordedShop, Path, Path]) -> None:
    entries = read_entries(visited[1])
    page = entries["GET /"]["response"]
    assert page["content"]["text"].startswith("<html>") and page["content"]["size"] == len(page["content"]["text"])
    assert page["bodySize"] == page["content"]["size"] - page["content"]["compression"]
    assert entries["GET /cart"]["response"]["content"]["text"] == CYRILLIC
    picture = entries["GET /picture.png"]["response"]["content"]
    assert picture["encoding"] == "base64" and base64.b64decode(picture["text"]) == PICTURE
    upload = entries["PUT /upload"]["request"]["postData"]
    assert upload["encoding"] == "base64" and base64.b64decode(upload["text"]) == PICTURE[:512]
    assert entries["DELETE /api/cart"]["request"]["postData"]["text"] == "all of it"
    long = entries["GET /long"]["response"]
    assert "text" not in long["content"] and long["bodySize"] == LONG and "not recorded" in long["content"]["comment"]


def test_times_add_up_and_tls_is_a_part_of_connecting(visited: tuple[RecordedShop, Path, Path]) -> None:
    entries = list(read_entries(visited[1]).values())
    for entry in entries:
        timings = entry["timings"]
        parts = [timings[name] for name in ("connect", "send", "wait", "receive")]
        assert entry["time"] == pytest.approx(sum(part for part in parts if part > 0), abs=0.01)
        # A new connection for which the request did not wait is no part of it.
        assert timings["ssl"] <= timings["connect"] or timings["connect"] == -1
    starts = [entry["startedDateTime"] for entry in entries]
    assert starts == sorted(starts)


def test_files_with_secrets_are_their_owners_alone(visited: tuple[RecordedShop, Path, Path]) -> None:
    folder = visited[1] / "data/leadline/record"
    private = [folder, folder / "ca", folder / "ca/mitmproxy-ca.pem", visited[1] / "shop.har"]
    assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in private] == [0, 0, 0, 0]


def test_kill_loses_no_exchange_that_had_ended(tmp_path: Path) -> None:
    with recorded_shop() as shop, recorder(tmp_path, "-o", "shop.yaml") as (process, proxy):
        assert curl("--proxy", proxy, f"http://127.0.0.1:{shop.port}/", folder=tmp_path) == 0
        (journal,) = (tmp_path / "data/leadline/record").glob("*.jsonl")
        until(lambda: journal.read_bytes().count(b"\n") == 1)
        process.kill()
        process.wait()
        until(lambda: not is_being_written(journal))
        assert not (tmp_path / "shop.yaml").exists()
        done = leadline("record", "--recover", journal, "-o", tmp_path / "shop.yaml")
        assert done.returncode == 0 and "1 request on 1 page" in done.stderr
        assert "get: /" in (tmp_path / "shop.yaml").read_text() and journal.exists()


def test_ctrl_c_ends_and_writes_and_refusals_are_named(tmp_path: Path) -> None:
    certificate, authority = make_certificate(tmp_path)
    with recorded_shop(certificate) as shop, recorder(tmp_path, "-o", "a.har", "--ca", authority) as (process, proxy):
        url = f"https://127.0.0.1:{shop.port}/"
        assert curl("--proxy", proxy, "--cacert", authority, url, folder=tmp_path) == 60, "the proxy's is another one"
        trusted = tmp_path / "data/leadline/record/ca/mitmproxy-ca-cert.pem"
        assert curl("--proxy", proxy, "--cacert", trusted, url, folder=tmp_path) == 0
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait() == 0, said
        assert f"127.0.0.1: the client refused the proxy's certificate; let it trust {trusted}" in said
        assert len(json.loads((tmp_path / "a.har").read_text())["log"]["entries"]) == 1


@contextmanager
def browser(folder: Path, proxy: str) -> Iterator[webdriver.Chrome]:
    """Chromium with the options that the recorder prints."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    words = trust.command_line(
        ["chromium"], proxy, trust.public_key_sum(folder / "data/leadline/record/ca"), folder / "p"
    )
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", *words[1:]):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def without_icon(requests: list[str]) -> list[str]:
    """What the shop saw, but for what a browser asks for when it likes."""
    return [one for one in requests if "favicon" not in one]


@pytest.mark.full_matrix
@pytest.mark.browser
@pytest.mark.apart
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: chromium and chromium-driver)")
def test_visit_of_chromium_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page sends its form; the next one has a picture, fetches a token and orders."""
    monkeypatch.setenv("SE_OFFLINE", "true")
    certificate, authority = make_certificate(tmp_path)
    words = ("-o", "shop.yaml", "--ca", authority, "--only-host", "127.0.0.1")
    with recorded_shop(certificate) as shop:
        with recorder(tmp_path, *words) as (process, proxy):
            with browser(tmp_path, proxy) as driver:
                driver.get(f"https://127.0.0.1:{shop.port}/#go")
                until(lambda: driver.title == "done")
            process.send_signal(signal.SIGINT)
            said = process.communicate()[1]
            assert process.returncode == 0, said
        seen = without_icon(shop.requests)
        assert sorted(seen) == sorted([*SEEN[:4], 'GET /picture.png "" 200', ORDER]), seen
        assert " on 2 pages of 127.0.0.1: shop.yaml" in said
        shop.requests.clear()
        found = leadline("scenario", tmp_path / "shop.yaml", "--json", "--ca", authority)
        assert found.returncode == 0, found.stderr
        assert sorted(without_icon(shop.requests)) == sorted(seen)
    assert {"Log in": 1, "Home": 1}.items() <= counts(json.loads(found.stdout)).items()


@pytest.mark.full_matrix
@pytest.mark.browser
@pytest.mark.apart
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: chromium)")
def test_chromium_as_the_command_uses_the_proxy_and_trusts_it(tmp_path: Path) -> None:
    certificate, authority = make_certificate(tmp_path)
    with recorded_shop(certificate) as shop:
        words = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom")
        url = f"https://127.0.0.1:{shop.port}/"
        done = record(tmp_path, "-o", "a.har", "--ca", authority, "--only-host", "127.0.0.1", "--", *words, url)
        assert done.returncode == 0, done.stderr
    pages = json.loads((tmp_path / "a.har").read_text())["log"]["pages"]
    assert [page["title"] for page in pages] == ["Log in"] and "csrf" in done.stdout
