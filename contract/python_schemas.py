"""Writes the schemas that Python's models are made of: the messages, and of them what a journal holds.

The meaning of each field is in the contract's own schema; repeated in Python it would be most of the modules' lines.
Usage: python_schemas.py SCHEMA FOLDER
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

_COUNTS = ("HttpCounts", "TunnelCounts", "FlowCounts")


def shorten(schema: Any) -> Any:
    """The schema without its texts, and without what the models' base class says: that there are no other fields."""
    if isinstance(schema, list):
        return [shorten(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: shorten(value)
        for key, value in schema.items()
        # A property that is called "description" has a schema.
        if not (key == "description" and isinstance(value, str)) and not (key == "additionalProperties" and not value)
    }


def event_schema(definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a journal's events with what they refer to, and of the names of counters."""
    reached, ahead = set(), ["Event"]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += re.findall(r'"#/\$defs/(\w+)"', json.dumps(definitions[name]))
    names = sorted({name for kind in _COUNTS for name in definitions[kind]["properties"]})
    return {
        "title": "JournalRecords",
        "type": "object",
        "properties": {"event": {"$ref": "#/$defs/Event"}, "count_name": {"$ref": "#/$defs/CountName"}},
        "$defs": {
            **{name: definitions[name] for name in sorted(reached)},
            "CountName": {"type": "string", "enum": names},
        },
    }


if __name__ == "__main__":
    source, folder = map(Path, sys.argv[1:])
    messages = shorten(json.loads(source.read_text()))
    (folder / "models.json").write_text(json.dumps(messages))
    (folder / "records.json").write_text(json.dumps(event_schema(messages["$defs"])))
