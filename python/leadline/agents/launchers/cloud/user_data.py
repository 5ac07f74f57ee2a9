"""The script that a machine of a fleet runs when it has booted (cloud-init user data): it arms the halt at the fleet's
end. Pure.

Nothing that the controller does later takes part in it: a machine halts though the controller is gone.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from leadline.agents.launchers.cloud.model import format_time

UNIT = "leadline-halt"
"""Name of the systemd timer and its service."""

_SCRIPT = """\
#!/bin/sh
# Made by `leadline fleet up`: halts this machine at the end of the fleet {name}, {end}.
end={end_epoch}
longest={minutes}
minutes=$(( (end - $(date +%s) + 59) / 60 ))
# By a clock that is wrong: never later than the fleet's time to live from now, and never never.
[ "$minutes" -le "$longest" ] || minutes=$longest
[ "$minutes" -ge 1 ] || minutes=1
shutdown -P "+$minutes" "the end of the fleet {name}"
# A restart of the machine cancels that. This timer stays.
if [ -d /run/systemd/system ]; then
  cat > /etc/systemd/system/{unit}.service <<'UNIT'
[Unit]
Description=Halt at the end of the fleet {name}
[Service]
Type=oneshot
ExecStart=/bin/systemctl -i poweroff
UNIT
  cat > /etc/systemd/system/{unit}.timer <<UNIT
[Unit]
Description=The end of the fleet {name}
[Timer]
OnCalendar={calendar} UTC
OnActiveSec=${{minutes}}min
AccuracySec=1s
Persistent=true
[Install]
WantedBy=timers.target
UNIT
  systemctl daemon-reload
  systemctl enable --now {unit}.timer
fi
"""


def halt_script(name: str, end: datetime, ttl_s: int) -> str:
    """The script for a fleet that ends at `end`, `ttl_s` seconds after its creation.

    It halts a minute late at most: shutdown(8) counts minutes.
    """
    return _SCRIPT.format(
        name=name,
        end=format_time(end),
        end_epoch=math.ceil(end.timestamp()),
        minutes=math.ceil(timedelta(seconds=ttl_s) / timedelta(minutes=1)),
        calendar=format_time(end).replace("T", " ").removesuffix("Z"),
        unit=UNIT,
    )
