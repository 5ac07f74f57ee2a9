"""The figures of tools are read from what wrk, ab, h2load, iperf3 and Leadline print; the outputs are real ones."""

from __future__ import annotations

import json

import pytest

from leadline.analysis.tool_output import Reported, ToolFigure, read_figure, read_figures, read_version
from leadline.errors import LeadlineError

WRK = """\
Running 1s test @ http://127.0.0.1:18080/?size=1000
  1 threads and 4 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   523.98us    1.21ms   8.90ms   88.71%
    Req/Sec    39.70k     6.95k   46.73k    70.00%
  39837 requests in 1.01s, 41.22MB read
Requests/sec:  39558.43
Transfer/sec:     40.93MB
"""
AB = """\
This is ApacheBench, Version 2.3 <$Revision$>

Concurrency Level:      4
Time taken for tests:   1.000 seconds
Complete requests:      53264
Failed requests:        0
Keep-Alive requests:    53264
Requests per second:    53263.84 [#/sec] (mean)
Time per request:       0.075 [ms] (mean)
"""
H2LOAD = """\
starting benchmark...
finished in 1.00s, 45459.00 req/s, 47.04MB/s
requests: 45459 total, 45463 started, 45459 done, 45459 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 45459 2xx, 0 3xx, 0 4xx, 0 5xx
req/s           :    8973.96    13783.13    11362.88     2757.55   100.00%
"""
IPERF3 = """\
{ "start": {"version": "iperf 3.12"}, "end": {
  "sum": {"seconds": 1.002943, "bits_per_second": 19981682.1, "sender": true},
  "sum_sent": {"seconds": 1.000116, "bits_per_second": 19981682.1, "sender": true},
  "sum_received": {"seconds": 1.002943, "bits_per_second": 19925359.6, "sender": false}}
}
"""
REFUSED = '{"start": {}, "end": {}, "error": "unable to connect to server: Connection refused"}'


@pytest.mark.parametrize(
    ("tool", "output", "figure"),
    [
        ("wrk", WRK, ToolFigure(39558.43, 0, 1.01)),
        ("wrk", f"{WRK}  Non-2xx or 3xx responses: 12\n", ToolFigure(39558.43, 12, 1.01)),
        ("wrk", f"  Socket errors: connect 1, read 2, write 0, timeout 3\n{WRK}", ToolFigure(39558.43, 6, 1.01)),
        ("ab", AB, ToolFigure(53263.84, 0, 1.0)),
        ("ab", f"{AB}Non-2xx responses:      7\n", ToolFigure(53263.84, 7, 1.0)),
        ("h2load", H2LOAD, ToolFigure(45459.0, 0, 1.0)),
        ("h2load", H2LOAD.replace("0 failed", "9 failed").replace("0 5xx", "9 5xx"), ToolFigure(45459.0, 9, 1.0)),
        ("iperf3", IPERF3, ToolFigure(19925359.6, 0, 1.002943)),
        ("iperf3", f"warning: a line before\n{IPERF3}", ToolFigure(19925359.6, 0, 1.002943)),
    ],
)
def test_figure_is_read(tool: str, output: str, figure: ToolFigure) -> None:
    assert read_figure(tool, output) == figure


@pytest.mark.parametrize(
    ("tool", "output", "words"),
    [
        ("iperf3", REFUSED, "iperf3: unable to connect to server: Connection refused"),
        ("iperf3", "killed\n", "iperf3 printed no figure; its last line: killed"),
        ("iperf3", "{}", "iperf3 printed no figure"),
        ("wrk", "unable to connect to 10.0.0.1:80 Connection refused\n", "its last line: unable to connect to"),
        ("ab", "", "its last line: none"),
        ("h2load", "finished in 1.00s\n", "h2load printed no figure"),
    ],
)
def test_output_without_a_figure_is_an_error(tool: str, output: str, words: str) -> None:
    with pytest.raises(LeadlineError) as raised:
        read_figure(tool, output)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("tool", "output", "version"),
    [
        ("wrk", "wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer\n", "4.1.0-3+b2"),
        ("ab", AB, "2.3"),
        ("h2load", "h2load nghttp2/1.52.0\n", "1.52.0"),
        ("k6", "k6 v1.8.1 (go1.26.8, linux/amd64)\n", "1.8.1"),
        ("jmeter", "/_/   \\_\\_| |_| \\_\\_____| |_| |_____|_| \\_\\ 5.6.3\n\nCopyright\n", "5.6.3"),
        ("iperf3", "iperf 3.12 (cJSON 1.7.15)\n", "3.12"),
        ("iperf3", "not known\n", None),
    ],
)
def test_version_is_read(tool: str, output: str, version: str | None) -> None:
    assert read_version(tool, output) == version


WRK_FAILURES = """\
Running 2s test @ http://127.0.0.1:39425/
  1 threads and 4 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     6.89ms    2.09ms  18.41ms   87.26%
    Req/Sec   564.90     80.07   690.00     65.00%
  Latency Distribution
     50%    5.94ms
     75%    7.64ms
     90%    9.37ms
     99%   16.10ms
  1130 requests in 2.01s, 158.45KB read
  Socket errors: connect 0, read 23, write 0, timeout 0
  Non-2xx or 3xx responses: 92
Requests/sec:    562.25
Transfer/sec:     78.84KB
"""
AB_FAILURES = """\
Concurrency Level:      4
Time taken for tests:   0.914 seconds
Complete requests:      500
Failed requests:        30
   (Connect: 0, Receive: 10, Length: 10, Exceptions: 10)
Non-2xx responses:      40
Keep-Alive requests:    490
Requests per second:    547.32 [#/sec] (mean)

Percentage of the requests served within a certain time (ms)
  50%      6
  99%     14
 100%     15 (longest request)
"""
H2LOAD_FAILURES = """\
finished in 743.46ms, 263.63 req/s, 36.97KB/s
requests: 1000 total, 200 started, 196 done, 180 succeeded, 820 failed, 804 errored, 0 timeout
status codes: 184 2xx, 0 3xx, 0 4xx, 16 5xx
                     min         max         mean         sd        +/- sd
time for request:     5.25ms     12.63ms      7.20ms      1.66ms    67.86%
"""
IPERF3_DATAGRAMS = """\
{ "start": {"version": "iperf 3.12"}, "end": {
  "streams": [{"udp": {"packets": 400, "lost_packets": 3, "out_of_order": 2, "sender": true}}],
  "sum": {"seconds": 0.639235, "bits_per_second": 5006931.4, "lost_packets": 3, "packets": 400, "sender": true},
  "sum_sent": {"seconds": 0.639114, "bits_per_second": 5006931.4, "lost_packets": 0, "packets": 400},
  "sum_received": {"seconds": 0.639235, "bits_per_second": 4993468.7, "packets": 399, "sender": false}}
}
"""
K6_FAILURES = """\
{"metrics": {
  "http_req_failed": {"contains": "default", "values": {"rate": 0.1, "passes": 99, "fails": 891}, "type": "rate"},
  "http_reqs": {"type": "counter", "contains": "default", "values": {"count": 990, "rate": 598.0221045907775}},
  "bad_statuses": {"values": {"count": 80, "rate": 48.325018552790105}, "type": "counter", "contains": "default"},
  "failed": {"contains": "default", "values": {"count": 19, "rate": 11.47719190628765}, "type": "counter"},
  "http_req_duration": {"type": "trend", "contains": "time",
    "values": {"med": 6.297435, "p(99)": 9.788804, "max": 15.470144}}}}
"""
JMETER_FAILURES = """\
timeStamp,elapsed,label,responseCode,responseMessage,threadName,dataType,success,failureMessage,bytes,sentBytes
1795913922224,73,get,200,OK,users 1-3,,true,,164,118
1795913922297,6,get,200,OK,users 1-1,,true,,164,118
1795913922303,8,get,500,Internal Server Error,users 1-1,text,false,,179,118
1795913922482,14,get,Non HTTP response code: java.net.SocketException,Connection reset,users 1-4,text,false,,1794,0
"""
OWN = json.dumps(
    {
        "metrics": {
            "requests": {"value": 980.0, "bound": None},
            "status_4xx": {"value": 0, "bound": None},
            "status_5xx": {"value": 80, "bound": None},
            "latency_p50_us": {"value": 5853.2, "bound": "at most"},
            "latency_p99_us": {"value": None, "bound": "not known"},
        },
        "limit": {"by": "server"},
        "errors": {"reset": 19, "closed_early": 1},
    }
)


@pytest.mark.parametrize(
    ("tool", "output", "figures"),
    [
        (
            "wrk",
            WRK_FAILURES,
            {
                "requests": 1130,
                "requests_per_s": 562.25,
                "bad_statuses": 92,
                "failed": 23,
                "latency_p50_us": 5940,
                "latency_p99_us": 16100,
                "latency_max_us": 18410,
            },
        ),
        (
            "ab",
            AB_FAILURES,
            {
                "requests": 500,
                "requests_per_s": 547.32,
                "bad_statuses": 40,
                "failed": 30,
                "latency_p50_us": 6000,
                "latency_p99_us": 14000,
                "latency_max_us": 15000,
            },
        ),
        (
            "h2load",
            H2LOAD_FAILURES,
            {"requests": 196, "requests_per_s": 263.63, "bad_statuses": 16, "failed": 804, "latency_max_us": 12630},
        ),
        (
            "k6",
            K6_FAILURES,
            {
                "requests": 971,
                "requests_per_s": 598.0221,
                "bad_statuses": 80,
                "failed": 19,
                "latency_p50_us": 6297.435,
                "latency_p99_us": 9788.804,
                "latency_max_us": 15470.144,
            },
        ),
        (
            "jmeter",
            JMETER_FAILURES,
            {
                "requests": 3,
                "requests_per_s": 4 / 0.272,
                "bad_statuses": 1,
                "failed": 1,
                "latency_p50_us": 8000,
                "latency_p99_us": 73000,
                "latency_max_us": 73000,
            },
        ),
        ("iperf3", IPERF3, {"throughput_bps": 19925359.6}),
        ("iperf3", IPERF3_DATAGRAMS, {"throughput_bps": 4993468.7, "sent": 400, "lost": 3, "reordered": 2}),
    ],
)
def test_all_figures_of_a_tool_are_read(tool: str, output: str, figures: dict[str, float]) -> None:
    found = read_figures(tool, output)
    assert {name: reported.value for name, reported in found.items()} == pytest.approx(figures)
    assert all(reported.bound is None for reported in found.values())


def test_missing_percentiles_of_a_tool_are_not_known() -> None:
    assert read_figures("wrk", WRK)["latency_p99_us"] == Reported(None)
    assert read_figures("ab", AB)["latency_p99_us"] == Reported(None)


def test_own_figures_keep_their_bounds() -> None:
    found = read_figures("leadline", OWN)
    assert (found["bad_statuses"], found["failed"]) == (Reported(80), Reported(20))
    assert found["latency_p50_us"] == Reported(5853.2, "at most")
    assert found["latency_p99_us"] == Reported(None, "not known")
    assert found["limited_by"] == Reported("server")


def test_error_document_of_leadline_is_an_error() -> None:
    with pytest.raises(LeadlineError, match="leadline: there is no server"):
        read_figures("leadline", json.dumps({"error": {"code": "failed", "message": "there is no server"}}))
