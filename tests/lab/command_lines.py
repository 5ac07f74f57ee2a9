"""Runs several command lines of `leadline` in one process, as a program: the interpreter of an environment of its own
starts once. Reads a JSON list of [arguments, variables]; writes a JSON list of [exit code, stdout, stderr].
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from in_process import leadline

if __name__ == "__main__":
    ended = [leadline(*arguments, variables=variables) for arguments, variables in json.load(sys.stdin)]
    json.dump([[one.returncode, one.stdout, one.stderr] for one in ended], sys.stdout)
