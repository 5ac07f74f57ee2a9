"""A script of LoadRunner against a small server, which keeps what it is asked for: a form and its hidden field, rows of
a table, a loop over values of an answer, a link, the outcome of a transaction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qsl, unquote

import cli_runs as cli
import pytest

from in_process import leadline

pytestmark = [
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
    pytest.mark.agent,
    pytest.mark.takes(3),
]


class Site(ThreadingHTTPServer):
    """A page with a form, one with rows and links; it keeps its requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Pages)
        self.lock = Lock()
        self.asked: list[str] = []
        self.cookies: Counter[str] = Counter()
        self.states = 0
        self.refused = 0


class Pages(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        site = self.server
        with site.lock:
            site.asked.append(f"GET {self.path}")
            if self.path == "/start":
                site.cookies[self.headers.get("Cookie", "")] += 1
                site.states += 1
                form = (
                    "<img src=/missing.png><form method=post action='/log%20in'><table><tr>"
                    f"<td><input type=hidden name=state value='s&amp;{site.states}'>"
                    "<input name=user><input name=password type=password></table></form>"
                )
                self._page(form, "visit=1")
            elif self.path == "/missing.png":
                self._page("none", None, 404)
            else:
                self._page("<p>fine", "boot=1" if self.path == "/init" else None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        fields = dict(parse_qsl(body, keep_blank_values=True))
        site = self.server
        with site.lock:
            site.asked.append(f"POST {self.path} {fields.get('user')} {fields.get('password')}")
            site.refused += not fields.get("state", "").startswith("s&")
        rows = "".join(f"<li>{row}</li>" for row in ("r1", "r2", "r3"))
        self._page(f"Welcome {fields.get('user')} {rows}<a href='off?all=1'>Sign <b>off</b></a>", None)

    def _page(self, html: str, cookie: str | None, status: int = 200) -> None:
        content = f"<html><body>{html}</body></html>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        if cookie is not None:
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


FILES = {
    "visit.usr": "[General]\nParameterFile=visit.prm\n[Actions]\nvuser_init=init.c\nAction=Action.c\nvuser_end=end.c\n",
    "visit.prm": '[parameter:user]\nType="Table"\nTable="users.dat"\nColumnName="user"\nDelimiter=","\n'
    'SelectNextRow="Sequential"\nGenerateNewVal="EachIteration"\n[parameter:word]\nType="Table"\nTable="users.dat"\n'
    'ColumnName="Col 2"\nSelectNextRow="Same line as user"\nDelimiter=","\n',
    "users.dat": "user,word\nada,analytical\nbob,engine\n",
    # A value of the header fields.
    "init.c": 'vuser_init() { web_reg_save_param("boot", "LB=boot=", "RB=\\r\\n", LAST);\n'
    'web_url("init", "URL=http://127.0.0.1:PORT/init", "Mode=HTTP", LAST); return 0; }',
    "end.c": 'vuser_end() {\nweb_url("end", "URL=http://127.0.0.1:PORT/end/{boot}{long}", "Mode=HTTP", LAST);\n'
    "return 0; }",
    "default.usp": '[RunLogicRunRoot]\nRunLogicNumOfIterations="2"\nRunLogicActionOrder="Action"\n',
    "Action.c": """
Action()
{
    int i;
    char first[20];

    lr_start_transaction("whole");
    lr_start_transaction("visit");
    web_url("start", "URL=http://127.0.0.1:PORT/start", LAST);
    web_reg_find("Text=Welcome {user}", LAST);
    web_set_max_html_param_len("10");
    web_reg_save_param("long", "LB=Welcome ", "RB=<a", "NotFound=warning", LAST);
    web_reg_save_param("rows", "LB=<li>", "RB=</li>", "Ord=ALL", LAST);
    web_submit_form("login", ITEMDATA, "Name=user", "Value={user}", ENDITEM,
        "Name=password", "Value={word}", ENDITEM, LAST);
    web_link("off", "Text=Sign off", LAST);
    for (i = 1; i <= lr_paramarr_len("rows"); i++) {
        if (i == 2)
            continue;
        lr_save_string(lr_paramarr_idx("rows", i), "row");
        web_url("row", "URL=http://127.0.0.1:PORT/row/{row}", "Mode=HTTP", LAST);
    }
    sprintf(first, "%s", lr_eval_string("{user}"));
    if (strcmp(first, "bob") == 0) {
        lr_set_transaction_status_by_name(LR_FAIL, "whole");
        lr_end_transaction("visit", LR_FAIL);
    } else
        lr_end_transaction("visit", LR_PASS);
    lr_end_transaction("whole", LR_AUTO);
    return 0;
}
""",
}


@pytest.mark.decided_by("exact counts")
def test_script_sends_what_its_statements_say(site: Site, tmp_path: Path) -> None:
    port = str(site.server_address[1])
    for name, content in FILES.items():
        (tmp_path / name).write_text(content.replace("PORT", port))
    done = leadline("scenario", str(tmp_path), "-J", "users=2", "--json")
    assert done.returncode == 0, done.stderr
    visits = [f"POST /log%20in {user}" for user in ("ada analytical", "bob engine")]
    assert Counter(site.asked) == Counter({
        "GET /init": 2, "GET /start": 4, visits[0]: 2, visits[1]: 2, "GET /off?all=1": 4, "GET /row/r1": 4,
        "GET /row/r3": 4, "GET /end/1": 2, "GET /missing.png": 4,
    })  # fmt: skip
    # Both iterations begin with the cookie of vuser_init alone.
    assert (site.cookies, site.refused) == (Counter({"boot=1": 4}), 0)
    labels = {one["name"]: one for one in json.loads(done.stdout)["scenario"]["labels"]}
    for name in ("visit", "whole"):
        assert (labels[name]["ended"], labels[name]["failed"]) == (4, 2)
        assert labels[name]["errors"] == {"marked_failed": 2}
    assert {name: one["failed"] for name, one in labels.items() if one["failed"]} == {"visit": 2, "whole": 2}


COMPUTED = r"""
int add(int a, int b)
{
    int i;
    for (i = 0; i < 5; i++) {
        if (i == 3)
            return a + b + i;
    }
    return 0;
}
Action()
{
    char buf[200], part[50]; char *tok; char *rest; int n = 7, i; float f; char rnd[10];
    char *list[] = {"x", "y", "z"};
    f = atof("2.5") * 2;
    sprintf(buf, "%.2f|%-4s|%05d|%3d|%s", f, "ab", n, 42, "q");
    lr_save_string(buf, "v");
    web_url("1", "URL=http://127.0.0.1:PORT/a/{v}", "Mode=HTTP", LAST);
    strcpy(buf, "k=1;;j=2");
    tok = strtok(buf, ";");
    strcpy(part, "");
    while (tok != NULL) {
        strcat(part, tok);
        strcat(part, "+");
        tok = strtok(NULL, ";");
    }
    lr_save_string(part, "v");
    web_url("2", "URL=http://127.0.0.1:PORT/b/{v}", "Mode=HTTP", LAST);
    rest = strchr(part, '=');
    sprintf(buf, "%d-%s-%d-%d", (int)(rest - part), rest + 1, strlen(rest), add(1, 2));
    lr_save_string(buf, "v");
    web_url("3", "URL=http://127.0.0.1:PORT/c/{v}", "Mode=HTTP", LAST);
    for (i = 0; i < 4; i++) rnd[i] = 'a' + i;
    rnd[i] = 0;
    strcpy(buf, list[n % 3]);
    switch (n) {
    case 1: strcat(buf, "1"); break;
    case 7: strcat(buf, "7");
    default: strcat(buf, "d");
    }
    lr_save_int(n / 2, "half");
    lr_save_string(rnd, "v");
    lr_save_string(buf, "w");
    web_url("4", "URL=http://127.0.0.1:PORT/d/{v}/{w}/{half}/{nothere}", "Mode=HTTP", LAST);
    return 0;
}
"""


@pytest.mark.decided_by("exact texts")
def test_computed_texts_are_those_of_c(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.usr").write_text("[Actions]\nAction=Action.c\n")
    (tmp_path / "Action.c").write_text(COMPUTED.replace("PORT", str(site.server_address[1])))
    done = leadline("scenario", str(tmp_path), "-J", "users=1", "--json")
    assert done.returncode == 0, done.stderr
    assert [unquote(text).removeprefix("GET ") for text in site.asked] == [
        "/a/5.00|ab  |00007| 42|q",
        "/b/k=1+j=2+",
        "/c/1-1+j=2+-7-6",
        "/d/abcd/7d/3/{nothere}",
    ]


def test_script_asks_for_its_users(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content.replace("PORT", "1"))
    done = leadline("scenario", str(tmp_path / "visit.usr"))
    assert done.returncode == 2
    assert done.stderr.strip().endswith("the parameter 'users' has no value; give -J users=VALUE")
