"""The `leadline` program for tests that need it in a process of its own. `conftest` puts the command without its start
here, where the tests' session has it.
"""

from __future__ import annotations

import sys
from pathlib import Path

program = str(Path(sys.executable).with_name("leadline"))
