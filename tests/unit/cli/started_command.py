"""The `leadline` program for tests that need it in a process of its own. `conftest` puts the command without its start
here, where the tests' session has it.
"""

from __future__ import annotations

import sys
from pathlib import Path

REAL = str(Path(sys.executable).with_name("leadline"))
"""For tests of the command's process group, in which no other program may stand for it."""
program = REAL
