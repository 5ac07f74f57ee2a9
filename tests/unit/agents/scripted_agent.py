"""A stand-in for an agent that plays one part: `scripted_agent.py PART`. Standard library only: it starts fast."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

PART = sys.argv[1]
EVENTS = (Path(__file__).parents[3] / "contract" / "golden" / "events.jsonl").read_text().splitlines()
HELLO = json.loads(EVENTS[0])
LOCK = threading.Lock()


def send(kind: str, **fields: object) -> None:
    with LOCK:
        sys.stdout.write(json.dumps({"type": kind, **fields}) + "\n")
        sys.stdout.flush()


def beat() -> None:
    while True:
        send("heartbeat", t_ns=time.monotonic_ns())
        time.sleep(0.02)


def obey(command: dict[str, object]) -> None:
    now = time.monotonic_ns()
    named = {key: command.get(key) for key in ("trial", "task")}
    match command["type"]:
        case "clock":
            send("clock", id=command["id"], received_ns=now + 5_000, sent_ns=now + 6_000)
        case "wake_up":
            send("wake_up", id=command["id"], t_ns=now, found=None)
        case "inspect":
            view = {"interfaces": [], "routes": [{"destination": "10.82.0.0/24", "gateway": None, "interface": "wan"}]}
            send("network", id=command["id"], t_ns=now, view=view)
        case "prepare" if command["task"] == "taken":
            error = {"blame": "system", "code": "address_in_use", "message": "port 5201 is taken"}
            send("failed", **named, t_ns=now, error=error)
        case "prepare" if command["task"] == "slow":
            pass
        case "prepare":
            send("prepared", **named, t_ns=now, pid=7, port=5201, http_port=None)
            if command["task"] == "daemon":
                send("output", **named, t_ns=now + 1, line="one: up")
                send("output", **named, t_ns=now + 2, line="two: Completed")
            if command["task"] == "crash":
                send("output", **named, t_ns=now + 1, line="FATAL no such cipher")
                send("exited", **named, t_ns=now + 2, code=1, signal=None, expected=False)
        case "start":
            load = {"side": "local", "wall_s": 1.0, "threads": [], "pushback": 0, "socket_drops": None}
            outcome: dict[str, Any] = {
                "flows": [],
                "histograms": [],
                "errors": {},
                "error_examples": {},
                "generator": load,
                "receiver": None,
                "counts": {},
            }
            send("finished", trial=command["trial"], task="load", t_ns=now, outcome=outcome)
        case "stop":
            send("exited", **named, t_ns=now, code=None, signal=15, expected=True)
        case "shutdown":
            send("exited", trial="t", task="daemon", t_ns=now, code=0, signal=None, expected=True)
            os._exit(0)
        case _:
            pass


def before_hello() -> None:
    match PART:
        case "mute":
            sys.stdin.read()
        case "rude":
            beat()
        case "changed":
            HELLO["mood"] = "good"
        case "stillborn":
            sys.stderr.write("no such namespace\nsorry\n")
            sys.exit(3)
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def answer(line: str) -> None:
    match PART:
        case "garbling":
            sample = next(json.loads(event) for event in EVENTS if '"type":"observation"' in event)
            good = json.dumps({"type": "observation", **sample})
            sys.stdout.write(f"{good}\n{good}\n{good[:-1]}\n{good}\n")
            sys.stdout.flush()
        case "babbling":
            print("Segmentation fault", flush=True)
        case "endless":
            print("x" * 5000, end="", flush=True)
        case "mortal":
            sys.stderr.write("out of memory\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        case "older":
            error = {
                "blame": "input",
                "code": "bad_command",
                "message": "not a command: unknown field `iperf3_options`",
            }
            send("failed", trial=None, task=None, t_ns=1, error=error)
        case "complaining":
            error = {"blame": "input", "code": "unknown_trial", "message": "no t"}
            send("failed", trial="t", task=None, t_ns=1, error=error)
        case "stubborn":
            pass
        case _:
            obey(json.loads(line))


def main() -> None:
    before_hello()
    greeting = {key: value for key, value in HELLO.items() if key != "type"}
    send("hello", **greeting | {"protocol": 9 if PART == "newer" else 2})
    if PART in ("obedient", "stubborn"):
        threading.Thread(target=beat, daemon=True).start()
    for line in sys.stdin:
        answer(line)
    if PART == "stubborn":
        time.sleep(600)


main()
