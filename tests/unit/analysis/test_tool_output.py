"""The figures of second tools are read from what wrk, ab, h2load and iperf3 print; the outputs are real ones."""

from __future__ import annotations

import pytest

from leadline.analysis.tool_output import ToolFigure, read_figure, read_version
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
        ("iperf3", "iperf 3.12 (cJSON 1.7.15)\n", "3.12"),
        ("iperf3", "not known\n", None),
    ],
)
def test_version_is_read(tool: str, output: str, version: str | None) -> None:
    assert read_version(tool, output) == version
