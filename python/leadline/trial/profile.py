"""Call stacks of a system under test while a test runs, and the pictures of them in the run's folder.

Who is profiled runs slower for it; the figures of a profiled run are for comparing it with itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from leadline.agents import Agent
from leadline.agents.flamegraph import flame_graph
from leadline.contract.models import ProfileWorkload
from leadline.dataset import RunFolder, read_journal
from leadline.dataset.atomic import replace
from leadline.errors import AgentError, DatasetError, LeadlineError, TaskFailed
from leadline.trial.environment import Environment

TASK = "profile"
# Not a divisor of anything that recurs in round numbers; each sample keeps 16 KiB of stack.
_HZ = 199
_READY_WITHIN_S = 30.0
# perf resolves its samples after the end, some thousand a second.
_RESOLVED_WITHIN_S = 300.0
_NO_PROCESS = "no_such_process"


@asynccontextmanager
async def profiled(label: str, processes: Sequence[str], env: Environment) -> AsyncIterator[None]:
    """Meanwhile the processes are sampled, on each gateway that runs one; what was found is in the journal afterwards.

    Raises:
        TaskFailed: a gateway cannot sample.
        AgentLost: one is gone.
    """
    sampled: list[Agent] = []
    try:
        for host in env.gateways if processes else ():
            try:
                workload = ProfileWorkload(processes=list(processes), frequency_hz=_HZ)
                await env.agents[host].prepare(label, TASK, workload, _READY_WITHIN_S)
            except TaskFailed as error:
                if error.code != _NO_PROCESS:
                    raise
            else:
                sampled.append(env.agents[host])
        yield
    finally:
        for agent in sampled:
            await _end(label, agent)


async def _end(label: str, agent: Agent) -> None:
    try:
        await agent.stop(label, TASK)
        await agent.profiled(label, TASK, _RESOLVED_WITHIN_S)
    except AgentError:
        # The test's own end says what became of it; a picture is missing, no figure is.
        return


def draw_profiles(folder: RunFolder) -> dict[str, list[tuple[str, str]]]:
    """Draw every profile of the journal that is not drawn yet. By test: each host and where its picture is, in the
    folder.

    Raises:
        DatasetError: one cannot be drawn or written.
    """
    drawn: dict[str, list[tuple[str, str]]] = {}
    for entry in read_journal(folder.journal_path):
        event = entry.get("event")
        if not isinstance(event, dict) or event.get("type") != "profiled" or not event.get("folded"):
            continue
        test, host = str(event.get("trial")), str(entry.get("host"))
        path = folder.profiles_path / f"{test}-{host}.svg".replace("/", "-")
        drawn.setdefault(test, []).append((host, f"{path.parent.name}/{path.name}"))
        if path.exists():
            continue
        try:
            svg = flame_graph(f"{test} on {host}", event["folded"])
            path.parent.mkdir(exist_ok=True)
        except (LeadlineError, OSError) as error:
            raise DatasetError(f"{path.name} cannot be drawn: {error}") from error
        replace(path, partial(Path.write_text, data=svg, encoding="utf-8"))
    return drawn
