"""Rows of raw packets: 60 bytes over a virtual pair, generator and receiver on one core, beside four instructions in C,
trafgen and tcpreplay. Our generating thread chooses its core and stays there; what commands it has the other.
"""

from __future__ import annotations

import asyncio
import json
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from namespaces import inside, namespace
from programs import GENERATOR_CPU, compiled, first_group, pinned, program, run
from rows import Rounds, Row, at_least, at_most, bounded, compared

from leadline.agents import Agent, Launch, agent_binary
from leadline.contract.models import Progress
from leadline.kinds.packets.model import PacketsTest
from leadline.kinds.packets.workload import generator, receivers

_MAC = "02:00:00:00:00:02"
_TO = ["v0", "--dst", "198.18.0.2", "--dst-mac", _MAC]
_COUNTED = ["--to", "v1"]
_FULL = ["--flows", "1000"]
_STAMPED = [*_FULL, "--stamp-every", "1"]
_PER_S, _OFFERED = "packets/s", "offered_packets_per_s"


def rates(rounds: Rounds) -> Iterator[Row]:
    """As fast as it goes, against the reference and against peers."""
    fixed, full, stamped, sockets, shared, trafgens, tcpreplays = ([] for _ in range(7))
    with compiled("frames.c") as reference, namespace() as place, tempfile.TemporaryDirectory() as folder:
        _pair(place)
        trafgen, tcpreplay = _trafgen(Path(folder)), _tcpreplay(Path(folder))
        for _ in range(rounds.count):
            bare = _bare(place, reference, rounds.seconds)
            fixed.append((_rate(place, rounds.seconds, []), bare))
            full.append((_rate(place, rounds.seconds, _FULL), bare))
            timed = _rate(place, rounds.seconds, _STAMPED)
            stamped.append((timed, bare))
            peer = _peer(place, trafgen, rounds.seconds, r"(\d+) packets outgoing")
            trafgens.append((timed, peer))
            # As trafgen: nothing counts at the far end.
            sockets.append((_value(_measured(place, rounds.seconds, ["--via", "af_packet"]), _OFFERED), peer))
            shared.append((_value(_measured(place, rounds.seconds, ["--via", "af_xdp"]), _OFFERED), peer))
            replaying = tcpreplay(rounds.seconds)
            replayed = _peer(place, replaying, rounds.seconds, r"Actual: (\d+) packets")
            tcpreplays.append((timed, replayed))
    bare_name = "four instructions"
    yield compared("packets, one flow", _PER_S, bare_name, fixed, bound=at_least(0.95))
    yield compared("packets, 1,000 flows counted", _PER_S, bare_name, full, bound=at_least(0.85))
    yield compared("packets, with times and delays too", _PER_S, bare_name, stamped, bound=at_least(0.6))
    yield compared("packets, with everything", _PER_S, "trafgen", trafgens, bound=at_least(8))
    yield compared("packets, with everything", _PER_S, "tcpreplay --topspeed", tcpreplays, bound=at_least(5))
    yield compared("packets by af_packet", _PER_S, "trafgen", sockets, bound=at_least(1.1))
    yield compared("packets by af_xdp, copied", _PER_S, "trafgen", shared, bound=at_least(1.1))


def costs(rounds: Rounds) -> Iterator[Row]:
    """What the receiver's program adds to each packet, and what a second generator on a queue of its own costs."""
    with compiled("frames.c") as reference, namespace() as place:
        _pair(place)
        added_ns = []
        for _ in range(rounds.count):
            with _dropping(place, reference, rounds.seconds + 5):
                dropped = _value(_measured(place, rounds.seconds, _STAMPED), _OFFERED)
            counted = _rate(place, rounds.seconds, _STAMPED)
            added_ns.append(1e9 / counted - 1e9 / dropped)
        cost_ns = median(added_ns)
        yield bounded("receiver's own cost, everything on", cost_ns, f"{cost_ns:.0f} ns/packet", at_most(60, " ns"))
    with namespace() as place:
        _pair(place, queues=2)
        pairs = []
        for _ in range(rounds.count):
            both, one = (_cost_ns(place, rounds.seconds, threads) for threads in (2, 1))
            pairs.append((both, one))
        yield compared("two generators on two queues", "CPU ns/packet", "one", pairs, bound=at_most(1.1))


def paced(rounds: Rounds) -> Iterator[Row]:
    """At a rate, and a capture at its own times."""
    with namespace() as place, tempfile.TemporaryDirectory() as folder:
        _pair(place)
        for name, rate in (("100 kpps", 100_000), ("1 Mpps", 1_000_000)):
            found = _measured(place, rounds.seconds, [*_COUNTED, "--rate", str(rate)])
            error = abs(_value(found, "sent") / (rate * rounds.seconds) - 1)
            yield bounded(f"packets at {name}: mean", error, f"{error:.5%} off", at_most(0.0001))
            worst = asyncio.run(_worst_part(place, rate, rounds.seconds))
            yield bounded(f"packets at {name}: worst 10 ms", worst, f"{worst:.3%} off", at_most(0.01))
        capture = Path(folder) / "capture.pcap"
        _write_capture(capture, frames=2000 * rounds.seconds, gap_ns=500_000)
        found = _measured(place, 2 * rounds.seconds, ["--pcap", str(capture)])
        late_us = float(found["generator"]["late_p99_us"])
        yield bounded("capture at its own times: p99 of lateness", late_us, f"{late_us:.1f} us", at_most(20, " us"))


def _pair(pid: int, queues: int = 1) -> None:
    counts = ["numrxqueues", str(queues), "numtxqueues", str(queues)]
    run(
        inside(
            pid, ["ip", "link", "add", "v0", *counts, "type", "veth", "peer", "name", "v1", "address", _MAC, *counts]
        )
    )
    run(inside(pid, ["ip", "address", "add", "198.18.0.1/24", "dev", "v0"]))
    for name in ("v0", "v1"):
        run(inside(pid, ["ip", "link", "set", name, "up"]))


def _measured(pid: int, seconds: int, options: Sequence[str]) -> dict[str, Any]:
    argv = ["leadline", "packets", *_TO, "-d", f"{seconds}s", "-i", "0", "--json", *options]
    document: dict[str, Any] = json.loads(run(inside(pid, argv)))
    return document


def _value(document: dict[str, Any], name: str) -> float:
    return float(document["metrics"][name]["value"])


def _rate(pid: int, seconds: int, options: Sequence[str]) -> float:
    found = _measured(pid, seconds, [*_COUNTED, *options])
    if _value(found, "received") < 0.99 * _value(found, "sent"):
        raise RuntimeError(f"of {_value(found, 'sent'):.0f} packets {_value(found, 'received'):.0f} arrived")
    return _value(found, _OFFERED)


async def _worst_part(pid: int, rate: int, seconds: int) -> float:
    """By what share the packets that arrive in 10 ms differ from those that are due, at most."""
    counts: list[tuple[int, int]] = []

    def take(_: str, event: object, _line: object) -> None:
        if isinstance(event, Progress) and event.task == "receive":
            counts.append((event.t_ns, event.flows[0].received_units or 0))

    test = PacketsTest(name="paced", device="v0", to="v1", dst="198.18.0.2", dst_mac=_MAC, rate=str(rate))
    test = test.model_copy(update={"duration_ms": 1000 * seconds})
    agent = await Agent.start("here", Launch((*inside(pid, []), str(agent_binary()))), sink=take)
    try:
        counted: Any = receivers(test, None)[0].work
        await agent.prepare("t", "receive", counted.model_copy(update={"interval_ms": 10}))
        await agent.prepare("t", "load", generator(test, ""))
        await agent.begin("t", 0)
        await agent.finished("t", "load", seconds + 10.0)
        await agent.stop("t", "receive")
        await agent.finished("t", "receive", 10.0)
    finally:
        await agent.close()
    # The first part begins before the load, and the last one ends behind it.
    whole = [one for one in counts if 0 < one[1] < rate * seconds]
    return max(abs((n - m) / ((t - s) * rate / 1e9) - 1) for (s, m), (t, n) in pairwise(whole))


def _cost_ns(pid: int, seconds: int, threads: int) -> float:
    found = _measured(pid, seconds, [*_COUNTED, "--flows", str(threads), "--threads", str(threads)])
    return _value(found, "client_cpu_ns_per_packet")


@contextmanager
def _dropping(pid: int, reference: str, seconds: int) -> Iterator[None]:
    """A program that only drops at the far end."""
    argv = inside(pid, [reference, "v0", "v1", "0", str(seconds)])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "dropping\n":
                raise RuntimeError("the program that drops could not be attached")
            yield
        finally:
            process.kill()


def _bare(pid: int, reference: str, seconds: int) -> float:
    said = run(pinned(GENERATOR_CPU, inside(pid, [reference, "v0", "v1", "64", str(seconds)])))
    return int(first_group(r"(\d+) frames", said)) / float(first_group(r"in ([\d.]+) s", said))


def _trafgen(folder: Path) -> list[str]:
    packet = folder / "packet.cfg"
    octets = ", ".join(f"0x{byte:02x}" for byte in _frame())
    packet.write_text(f"{{ {octets} }}\n")
    return [program("trafgen"), "--dev", "v0", "--conf", str(packet), "--cpus", "1"]


def _tcpreplay(folder: Path) -> Callable[[int], list[str]]:
    capture = folder / "replayed.pcap"
    _write_capture(capture, frames=10_000, gap_ns=1000)
    options = ["--intf1=v0", "--topspeed", "--loop=0", "--preload-pcap"]
    return lambda seconds: [program("tcpreplay"), *options, f"--duration={seconds}", str(capture)]


def _peer(pid: int, argv: Sequence[str], seconds: int, pattern: str) -> float:
    ended = ["timeout", "--signal=INT", str(seconds), *argv]
    # Its exit status after a signal says nothing.
    said = run(["sh", "-c", '"$@" 2>&1 || true', "sh", *pinned(GENERATOR_CPU, inside(pid, ended))])
    return int(first_group(pattern, said)) / seconds


def _frame() -> bytes:
    return (
        bytes.fromhex("02000000000202000000000108004500002e00004000")
        + bytes.fromhex("4011aeb8c6120001c6120002")
        + struct.pack(">HHHH", 1024, 9, 26, 0)
        + bytes(18)
    )


def _write_capture(path: Path, *, frames: int, gap_ns: int) -> None:
    """pcap with nanoseconds."""
    frame = _frame()
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))
        for number in range(frames):
            second, rest_ns = divmod(number * gap_ns, 10**9)
            file.write(struct.pack("<IIII", second, rest_ns, len(frame), len(frame)) + frame)
