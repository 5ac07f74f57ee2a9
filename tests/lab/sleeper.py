"""Prints a line and sleeps for ten minutes; its arguments are marks by which tests find it."""

from __future__ import annotations

import time

print("at work", flush=True)
time.sleep(600)
