"""The modules of `bench/` can be imported here, as `bench/run.py` imports them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "bench"))
