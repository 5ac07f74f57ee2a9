"""Second tools that fail, are missing or measure nothing: a reason in the record, and no error of the measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from leadline.agents.host_ops import Completed, HostProcess
from leadline.contract.models import OutputLine, Prepared
from leadline.errors import AgentLost, LeadlineError, MissingBinary, SutFailed, TaskFailed
from leadline.kinds.http.model import HttpTest
from leadline.kinds.tcp import TcpTest
from leadline.trial import second_tools
from leadline.trial.event_log import EntryList, EventLog
from leadline.trial.second_tools import ToolHosts, ToolRun, repeat_with, run_from_here
from leadline.trial.workloads import Server

WRK = ToolRun("wrk", ("wrk", "http://192.0.2.1/"), 1.0)
IPERF = ToolRun("iperf3", ("iperf3", "-c", "192.0.2.1"), 1.0, ("iperf3", "-s"))
GOOD = "  1000 requests in 1.00s, 1MB read\nRequests/sec:   1000.50\n"


@dataclass
class ScriptedHost:
    """A host whose commands print what the test says, or fail as it says; keeps which processes run."""

    prints: Mapping[str, str | LeadlineError] = field(default_factory=dict)
    listens: bool = True
    name: str = "this host"
    running: list[str] = field(default_factory=list)

    async def run(self, *argv: str, within_s: float = 10.0) -> Completed:
        """`-v` and `--version` print a version."""
        printed = "wrk 4.1.0" if argv[-1] in ("-v", "--version") else self.prints.get(argv[0], GOOD)
        missing = self.prints.get("which")
        if isinstance(missing, LeadlineError):
            raise missing
        if isinstance(printed, LeadlineError):
            raise printed
        return Completed(0, printed)

    async def start(self, process: HostProcess) -> Prepared:
        """See `ToolHost`."""
        self.running.append(process.name)
        return Prepared.model_construct()

    async def output(self, process: str, containing: str, within_s: float) -> OutputLine:
        """See `ToolHost`."""
        if not self.listens:
            raise TaskFailed(
                "this host", "iperf3", "exited", "iperf3: error - unable to start listener: Address already in use"
            )
        return OutputLine.model_construct()

    async def stop(self, process: str) -> None:
        """See `ToolHost`."""
        self.running.remove(process)


async def record_of(run: ToolRun, host: ScriptedHost) -> dict[str, Any]:
    """The journal's record of the tool's run."""
    entries: list[dict[str, Any]] = []
    found = await repeat_with({"c": run}, ToolHosts({"c": host}, host, lambda name, _: Path(name)), "c01/1")
    found.record(HttpTest(name="h", cross_check="wrk"), "c01/1/h", EventLog(EntryList(entries, None), ()))
    return entries[0]


async def test_figure_of_a_tool_is_recorded() -> None:
    record = await record_of(WRK, ScriptedHost())
    assert (record["value"], record["error"], record["tool"], record["version"]) == (1000.5, None, "wrk", "4.1.0")


@pytest.mark.parametrize(
    ("prints", "said"),
    [
        ({"wrk": "unable to connect to 192.0.2.1:80 Connection refused\n"}, "unable to connect"),
        ({"wrk": ""}, "wrk"),
        ({"wrk": GOOD.replace("1000.50", "0.00")}, "wrk on c measured nothing"),
        ({"wrk": SutFailed("wrk http://192.0.2.1/ did not end in 21 s")}, "did not end in 21 s"),
        ({"which": MissingBinary("wrk")}, "wrk is not installed"),
    ],
)
async def test_tool_that_fails_leaves_its_reason(prints: dict[str, str | LeadlineError], said: str) -> None:
    record = await record_of(WRK, ScriptedHost(prints))
    assert record["value"] is None and said in record["error"]


async def test_tools_server_that_does_not_listen_is_a_reason_and_is_stopped() -> None:
    host = ScriptedHost(listens=False)
    record = await record_of(IPERF, host)
    assert record["value"] is None and "Address already in use" in record["error"]
    assert host.running == []


async def test_lost_agent_is_an_error() -> None:
    with pytest.raises(AgentLost):
        await record_of(WRK, ScriptedHost({"wrk": AgentLost("this host", "it is gone")}))


@pytest.mark.parametrize(("its_own_answers", "port"), [(True, 5301), (False, 5999)])
def test_own_server_is_started_on_this_host_only(
    monkeypatch: pytest.MonkeyPatch, its_own_answers: bool, port: int
) -> None:
    """Elsewhere the tool's own server is used if it runs, else Leadline's, which answers iperf3 too."""
    monkeypatch.setattr(second_tools, "_answers", lambda host, port: its_own_answers)
    test = TcpTest(name="t", cross_check="iperf3")
    assert run_from_here(test, Server("127.0.0.1")).server_argv[:2] == ("iperf3", "-s")
    far = run_from_here(test, Server("192.0.2.1", 5999, bind="192.0.2.9", family="v4"))
    assert far.server_argv == ()
    assert " ".join(far.argv).startswith(f"iperf3 -J -c 192.0.2.1 -p {port} -t 10 -P 1 -4 -B 192.0.2.9 -l 131072")
