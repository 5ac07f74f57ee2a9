"""What the driver asks of Ray: connect, place one actor on each of several nodes, tell why one is lost, clean up.

Calls that block run in threads; calls of actors are awaited.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from leadline.agents.launchers.ray_driver import actor

_PROBE_S = 5.0
"""For a connection to the head."""
_WATCH_PERIOD_S = 1.0
"""Between two looks at the nodes that are silent, and for each of them to answer a connection."""
_SILENCE_S = 2.0
"""A node that leaves a call unanswered for this long is looked at: Ray itself takes 15 s to find a killed one."""
_SILENT_GRACE_S = 1.0
"""For the end of the commands on a node that is silent."""
_PAUSE_S = 0.25
"""Between two calls of an actor that is out of reach for a moment."""
_ACTOR_WITHIN_S = 60.0
"""For the first answer of an actor, whose process a node has to start."""
_BUNDLE = {"memory": 64 * 1024 * 1024}
"""What a host asks of its node. A node may have no CPU to give away, but each has memory."""
_NODE_ID_LABEL = "ray.io/node-id"
_HEAD_RESOURCE = "node:__internal_head__"
_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")

T = TypeVar("T")


class Refusal(Exception):
    """A request failed; the message is one line."""

    def __init__(self, message: str, hint: str | None = None, code: str = "failed", errno: int | None = None) -> None:
        super().__init__(message)
        self.message, self.hint, self.code, self.errno = message, hint, code, errno


class Lost(Exception):
    """A host is gone; the message says why."""


@dataclass
class PlacedHost:
    """A node that an actor of ours runs on."""

    position: int
    handle: Any
    facts: dict[str, Any]
    raylet_port: int
    heard: float
    """When a call was last made without another one outstanding, or answered (monotonic, s)."""
    lost: str | None = None
    pending: set[asyncio.Task[Any]] = field(default_factory=set)
    """Calls without an answer."""

    @property
    def is_silent(self) -> bool:
        """Whether it owes an answer. A call may wait for output that a command has none of, so this proves nothing."""
        return bool(self.pending) and time.monotonic() - self.heard > _SILENCE_S

    def lose(self, reason: str) -> None:
        """Note that the host is gone: all calls end."""
        self.lost = self.lost or reason
        for call in self.pending:
            call.cancel()

    @property
    def address(self) -> str:
        """The node's IP address."""
        return str(self.facts["address"])


class Cluster:
    """The cluster, and our hosts in it."""

    def __init__(self) -> None:
        self.hosts: list[PlacedHost] = []
        self._ray: Any = None
        self._group: Any = None
        self._name = "the Ray cluster"

    def connect(self, address: str | None) -> None:
        """Connect to a head's address, or to the cluster that runs on this machine; blocks.

        Raises:
            Refusal: there is none, it is out of reach, or its versions are others.
        """
        if address is not None:
            self._name = f"the Ray cluster at {address}"
            _probe_head(address)
        try:
            import ray  # noqa: PLC0415
            from ray import cloudpickle  # noqa: PLC0415
        except ImportError as error:
            raise Refusal(
                f"Ray cannot be used by {sys.executable}: {_one_line(error)}",
                "install leadline[ray], or name the Python of the cluster in LEADLINE_RAY_PYTHON",
                "missing",
            ) from error
        cloudpickle.register_pickle_by_value(actor)
        try:
            ray.init(
                address=address or "auto",
                namespace=f"leadline-{os.getpid()}-{time.time_ns()}",
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except Exception as error:
            raise refuse_connection(error, address, self._name) from error
        self._ray = ray
        if address is None:
            self._name = f"the Ray cluster at {ray.get_runtime_context().gcs_address}"

    async def place(self, count: int, within_s: float) -> None:
        """Reserve `count` nodes and start an actor on each.

        Raises:
            Refusal: there are fewer, or one did not start.
        """
        nodes = await asyncio.to_thread(self._alive)
        if len(nodes) < count:
            raise Refusal(
                f"{self._name} has {_nodes(len(nodes))}, and {count} hosts need one each",
                f"start more nodes, or ask for ?hosts={len(nodes)}",
                "input",
            )
        # The head serves the cluster: it takes part only where the others do not suffice.
        heads = [node["NodeID"] for node in nodes if _HEAD_RESOURCE in node["Resources"]]
        spared = heads[0] if heads and count <= len(nodes) - len(heads) else None
        await self._reserve(count, nodes, spared, within_s)
        ports = {node["NodeID"]: node["NodeManagerPort"] for node in nodes}
        strategy = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        remote = self._ray.remote(actor.Host)
        handles = [
            remote.options(
                num_cpus=0, max_restarts=0, max_task_retries=0, enable_task_events=False,
                scheduling_strategy=strategy(self._group, placement_group_bundle_index=position),
            ).remote()
            for position in range(count)
        ]  # fmt: skip
        actor_within_s = _ACTOR_WITHIN_S + count
        answers = await asyncio.gather(
            *(asyncio.wait_for(_answer(handle.describe.remote()), actor_within_s) for handle in handles),
            return_exceptions=True,
        )
        for position, (handle, facts) in enumerate(zip(handles, answers, strict=True)):
            if isinstance(facts, BaseException):
                words = "it did not answer in time" if isinstance(facts, TimeoutError) else _one_line(facts)
                raise Refusal(f"{self._name}: the actor on {self._node_of(position)} did not start: {words}")
            port = ports.get(facts["node_id"], 0)
            self.hosts.append(PlacedHost(position, handle, facts, port, time.monotonic()))

    async def call(self, host: PlacedHost, method: str, *arguments: Any) -> Any:
        """The answer of a host's actor. Repeats the call while Ray says that the actor is out of reach only.

        Raises:
            Lost: the host is gone.
            Exception: what the actor raised.
        """
        errors = self._ray.exceptions
        while host.lost is None:
            if not host.pending:
                host.heard = time.monotonic()
            answer = asyncio.create_task(_answer(getattr(host.handle, method).remote(*arguments)))
            host.pending.add(answer)
            try:
                result = await answer
                host.heard = time.monotonic()
                return result
            except asyncio.CancelledError:
                if host.lost is None:
                    raise
            except errors.ActorUnavailableError:
                await self._look_at(host)
                await asyncio.sleep(_PAUSE_S)
            except errors.RayTaskError as error:
                raise error.cause or error from error
            except errors.RayError as error:
                host.lose(await asyncio.to_thread(self._why_dead, host, error))
            finally:
                host.pending.discard(answer)
        raise Lost(host.lost)

    async def watch(self) -> None:
        """Look for nodes that are gone, until cancelled. A refused connection is proof; no answer is none, because a
        network that is cut may come back."""
        while True:
            await asyncio.sleep(_WATCH_PERIOD_S)
            silent = [host for host in self.hosts if host.lost is None and host.is_silent]
            await asyncio.gather(*map(self._look_at, silent))

    def store(self, data: bytes) -> Any:
        """Put bytes into the object store, from where each node fetches them; blocks."""
        return self._ray.put(data)

    async def close(self, grace_s: float) -> list[str]:
        """End all commands and actors and give the nodes back; returns what could not be done."""
        if self._ray is None:
            return []
        living = [host for host in self.hosts if host.lost is None]
        stops = [
            asyncio.wait_for(_answer(host.handle.stop.remote()), _SILENT_GRACE_S if host.is_silent else grace_s)
            for host in living
        ]
        ends = await asyncio.gather(*stops, return_exceptions=True)
        problems = [
            f"{host.address}: {_one_line(end) or 'it did not answer'}"
            for host, end in zip(living, ends, strict=True)
            if isinstance(end, BaseException)
        ]
        with contextlib.suppress(Exception):
            await asyncio.wait_for(asyncio.to_thread(self._give_back), grace_s)
        return problems

    def _give_back(self) -> None:
        for host in self.hosts:
            with contextlib.suppress(Exception):
                # The actor itself, which can be asked without a head; and the head, which ends it in any case.
                if host.lost is None:
                    host.handle.__ray_terminate__.remote()
                self._ray.kill(host.handle)
        if self._group is not None:
            with contextlib.suppress(Exception):
                self._ray.util.remove_placement_group(self._group)
        self._ray.shutdown()

    # # --- placing ---

    def _alive(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    async def _reserve(self, count: int, nodes: list[dict[str, Any]], spared: str | None, within_s: float) -> None:
        selectors = [{_NODE_ID_LABEL: f"!{spared}"}] * count if spared else None
        self._group = await asyncio.to_thread(
            self._ray.util.placement_group,
            [dict(_BUNDLE) for _ in range(count)],
            strategy="STRICT_SPREAD",
            bundle_label_selector=selectors,
        )
        if not await asyncio.to_thread(self._group.wait, within_s):
            raise Refusal(
                f"{self._name} did not give {count} of its {_nodes(len(nodes))} within {within_s:g} s: "
                f"each host needs {_BUNDLE['memory'] >> 20} MiB of a node's memory that nothing else has reserved",
                "ask for fewer hosts, or end what else runs there",
            )

    def _node_of(self, position: int) -> str:
        with contextlib.suppress(Exception):
            table = self._ray.util.placement_group_table(self._group)
            node_id = table["bundles_to_node_id"][position]
            return f"its node {next(n['NodeManagerAddress'] for n in self._ray.nodes() if n['NodeID'] == node_id)}"
        return f"host {position + 1}"

    # # --- losing ---

    def _node(self, host: PlacedHost) -> dict[str, Any] | None:
        with contextlib.suppress(Exception):
            return next((one for one in self._ray.nodes() if one["NodeID"] == host.facts["node_id"]), None)
        return None

    async def _look_at(self, host: PlacedHost) -> None:
        try:
            connecting = asyncio.open_connection(host.address, host.raylet_port)
            _, writer = await asyncio.wait_for(connecting, _WATCH_PERIOD_S)
            writer.close()
        except ConnectionRefusedError:
            host.lose(f"its Ray node {host.address} is gone: its raylet has ended")
        except (TimeoutError, OSError):
            pass

    def _why_dead(self, host: PlacedHost, error: Exception) -> str:
        node = self._node(host)
        if node is not None and not node["Alive"]:
            words = node.get("DeathReasonMessage") or node.get("DeathReason") or ""
            return f"its Ray node {host.address} died: {_one_line(words) or _one_line(error)}"
        return f"its Ray actor on {host.address} died: {explain_actor_end(str(error))}"


async def _answer(reference: Awaitable[T]) -> T:
    """An answer that can be waited for as a coroutine."""
    return await reference


def _probe_head(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PROBE_S):
            pass
    except OSError as error:
        raise Refusal(
            f"no Ray cluster answers at {address}: {error.strerror or error}",
            "name the head as HEAD:PORT, the address that `ray start` prints (port 6379 by default)",
            "input",
        ) from error


def refuse_connection(error: Exception, address: str | None, name: str) -> Refusal:
    """Why a cluster cannot be used, from what Ray raised; `name` is what messages call it."""
    words = str(error)
    versions = _VERSIONS.findall(words)
    if len(versions) == 2:
        (cluster_ray, cluster_python), (own_ray, own_python) = versions
        return Refusal(
            f"{name} runs Ray {cluster_ray} on Python {cluster_python}, and this is Ray {own_ray} on Python "
            f"{own_python}; both must be the same, but for Python's patch number",
            "name the Python of the cluster in LEADLINE_RAY_PYTHON",
            "input",
        )
    if address is None and isinstance(error, ConnectionError):
        return Refusal(
            "no Ray cluster runs on this machine",
            "start one (`ray start --head`), or name its head: ray://HEAD:PORT",
            "input",
        )
    if "node" in words and "IP address" in words:
        return Refusal(
            f"{name} has no node on this machine, and a driver of Ray needs one beside it",
            f"run this on the head or on another node, or join this machine: `ray start --address={address} "
            "--num-cpus=0`",
            "input",
        )
    return Refusal(f"{name} cannot be used: {_one_line(error)}")


def explain_actor_end(words: str) -> str:
    """What Ray says of an actor's end, without the actor's identifiers, and without its advice for operators."""
    lines = [line for line in words.splitlines() if line.strip() and not line.startswith("\t")]
    return _one_line(" ".join(lines[1:] or lines).partition(" Some common causes")[0])


def _nodes(count: int) -> str:
    return f"{count} node{'s' * (count != 1)} alive"


def _one_line(words: object) -> str:
    return " ".join(str(words).split())[:400]
