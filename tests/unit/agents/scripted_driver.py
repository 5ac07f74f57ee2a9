"""A Ray driver that plays a part: places two hosts, and does with a command what its first word says."""

from __future__ import annotations

import json
import os
import sys

from leadline.agents.launchers.ray_driver.frames import CLUSTER, FrameReader, Kind, encode_frame, encode_object


def send(frame: bytes) -> None:
    os.write(1, frame)


def take(kind: Kind, number: int, payload: bytes) -> None:
    match kind:
        case Kind.CONNECT:
            facts = {"node_id": "ab", "name": "n", "machine": "x86_64", "niceness": 0}
            hosts = [{**facts, "address": f"10.0.0.{position + 1}"} for position in range(json.loads(payload)["hosts"])]
            send(encode_object(Kind.CONNECTED, CLUSTER, {}) + encode_object(Kind.PLACED, CLUSTER, {"hosts": hosts}))
        case Kind.INSTALL:
            send(encode_object(Kind.INSTALLED, number, {"paths": ["/c/tool", None], "problems": [None, "no room"]}))
        case Kind.START:
            start(number, json.loads(payload)["argv"])
        case Kind.INPUT:
            send(encode_frame(Kind.OUTPUT, number, payload))
        case Kind.CLOSE_INPUT:
            ends = encode_frame(Kind.OUTPUT, number) + encode_frame(Kind.ERRORS, number)
            send(ends + encode_object(Kind.EXITED, number, {"status": 3}))
        case Kind.CLOSE:
            sys.exit(0)


def start(number: int, argv: list[str]) -> None:
    if argv[0] == "missing":
        facts = {"message": "No such file or directory", "hint": None, "code": "os", "errno": 2}
        send(encode_object(Kind.REFUSED, number, facts))
        return
    send(encode_object(Kind.STARTED, number, {}))
    match argv[0]:
        case "lost":
            send(encode_object(Kind.LOST, number, {"reason": "its Ray node 10.0.0.1 died: a reason"}))
        case "end":
            print("a line of Ray's", file=sys.stderr, flush=True)
            sys.exit(1)
        case "/c/tool":
            send(encode_frame(Kind.ERRORS, number, b"installed\n"))


reader = FrameReader()
while data := os.read(0, 65536):
    for one in reader.feed(data):
        take(*one)
