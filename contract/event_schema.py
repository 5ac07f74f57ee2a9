"""Prints the part of the contract's schema that a journal holds: events with what they refer to, and counters' names.

`generate.sh` makes `records.py` of it. Usage: event_schema.py SCHEMA
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

_COUNTS = ("HttpCounts", "TunnelCounts", "FlowCounts")


def event_schema(schema: dict[str, dict[str, dict[str, object]]]) -> dict[str, object]:
    """The schema of a journal's events."""
    definitions = schema["$defs"]
    reached, ahead = set(), ["Event"]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += re.findall(r'"#/\$defs/(\w+)"', json.dumps(definitions[name]))
    names = sorted({name for kind in _COUNTS for name in definitions[kind]["properties"]})  # type: ignore[attr-defined]
    count_name = {"description": "The name of a counter of any kind of load.", "type": "string", "enum": names}
    return {
        "title": "JournalRecords",
        "description": "What the lines of a journal hold that came from agents.",
        "type": "object",
        "properties": {"event": {"$ref": "#/$defs/Event"}, "count_name": {"$ref": "#/$defs/CountName"}},
        "$defs": {**{name: definitions[name] for name in sorted(reached)}, "CountName": count_name},
    }


if __name__ == "__main__":
    print(json.dumps(event_schema(json.loads(Path(sys.argv[1]).read_text()))))
