"""Runs tools against truths, one after the other, and compares what they report with what is true."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from leadline.analysis.tool_output import Reported, read_figures
from leadline.analysis.truths import Figure, ToolRun, TruthsReport, compare
from leadline.errors import LeadlineError
from leadline.truths import http_truths, network_truths
from leadline.truths.model import HttpLoad, Load, NotDecided, Site, Truth
from leadline.truths.plan_tools import PLAN_TOOLS
from leadline.truths.tools import COMMAND_TOOLS, Command, Tool

TRUTHS = {truth.id: truth for truth in (*http_truths.TRUTHS, *network_truths.TRUTHS)}
"""All truths, in the order in which they run."""
TOOLS = {tool.name: tool for tool in (*COMMAND_TOOLS, *PLAN_TOOLS)}
"""All tools, in the order of the tables."""
_BEYOND_S = 40.0
"""Time that a tool may take longer than its load: to connect, to calibrate itself, and for the last answers."""
_TOOL_PORT = 5301
"""The port of a tool's own server, on hosts that are made for it."""
_LAST_WORDS = 200


def run_truths(
    truths: Sequence[Truth], tools: Sequence[Tool], skipped: dict[str, str], began: Callable[[str], None]
) -> TruthsReport:
    """Run each tool against each truth whose load it has; `skipped` are those that this machine cannot make.
    Ctrl-C ends it, and keeps the runs that have ended."""
    possible = [truth for truth in truths if truth.id not in skipped]
    pairs = [(truth, tool) for truth in possible for tool in tools if tool.has(truth.load)]
    versions = {tool.name: tool.version() for tool in tools}
    runs: list[ToolRun] = []
    is_interrupted = False
    try:
        for number, (truth, tool) in enumerate(pairs, 1):
            began(f"[{number}/{len(pairs)}] {truth.id}: {tool.name}")
            runs.append(run_once(truth, tool))
    except KeyboardInterrupt:
        is_interrupted = True
    return TruthsReport(tuple(truth.text for truth in truths), versions, tuple(runs), skipped, is_interrupted)


def run_once(truth: Truth, tool: Tool) -> ToolRun:
    """Run a tool against a truth. What fails is part of the result."""
    command = Command(())
    try:
        with truth.site(truth.load) as site, _server(tool, site) as port:
            command = tool.command(truth.load, site.address, port)
            reported = _reported(tool, command, site.client, truth.load)
            true = site.true_figures()
            figures = [
                replace(allowed, slack=allowed.slack + site.uncertain.get(allowed.name, 0.0))
                for allowed in (allow_for_the_end(figure, truth.load, command) for figure in truth.figures)
            ]
            return ToolRun(truth.id, tool.name, command.argv, compare(figures, true, reported))
    except NotDecided as reason:
        return ToolRun(truth.id, tool.name, command.argv, (), undecided=str(reason))
    except LeadlineError as failure:
        return ToolRun(truth.id, tool.name, command.argv, (), str(failure))


@contextmanager
def _server(tool: Tool, site: Site) -> Iterator[int]:
    """The port that answers a tool: that of the truth's own server, or of the tool's, which runs during the block."""
    if site.port is not None:
        yield site.port
        return
    assert tool.server is not None, "a tool without a server has loads for servers of others alone"
    argv = [*site.server, *tool.server.argv(site.address, _TOOL_PORT)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            _await_line(process, tool)
            yield _TOOL_PORT
        finally:
            process.kill()


def _await_line(process: subprocess.Popen[str], tool: Tool) -> None:
    assert process.stdout is not None
    assert tool.server is not None
    lines: list[str] = []
    for line in process.stdout:
        if tool.server.ready in line:
            return
        lines.append(line)
    raise LeadlineError(f"the server of {tool.name} ended: {''.join(lines)[-_LAST_WORDS:].strip()}")


def _reported(tool: Tool, command: Command, prefix: Sequence[str], load: Load) -> Mapping[str, Reported]:
    """The figures of a tool. Exit codes say nothing: tools have their own, and Leadline's is a verdict."""
    with TemporaryDirectory(prefix="leadline-truths-") as folder:
        for name, text in command.files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        done = _run_tool(tool, [*prefix, *command.argv], folder if command.files else None, load.duration_s + _BEYOND_S)
        result = Path(folder) / command.result if command.result is not None else None
        output = done.stdout if result is None else result.read_text(encoding="utf-8") if result.exists() else ""
    try:
        return read_figures(tool.name, output)
    except LeadlineError as failure:
        raise LeadlineError(f"{failure}{_on_stderr(done.stderr)}") from None


def _run_tool(tool: Tool, argv: Sequence[str], folder: str | None, within_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise LeadlineError(f"{tool.name} did not end within {within_s:g} s") from None
    except OSError as error:
        raise LeadlineError(f"{tool.name} cannot be run: {error.strerror}") from None


def _on_stderr(said: str) -> str:
    """The last line of what a tool printed on stderr."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"; on stderr: {lines[-1][-_LAST_WORDS:]}" if lines else ""


def allow_for_the_end(figure: Figure, load: Load, command: Command) -> Figure:
    """A count of a load that ends by time: what is under way then is counted by one side alone."""
    if not isinstance(load, HttpLoad) or command.ends_by_number or figure.unit != "count":
        return figure
    return replace(figure, slack=figure.slack + load.connections)
