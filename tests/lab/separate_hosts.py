"""Runs commands in a network of their own, and plans on three hosts there that are reached as over SSH."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from waiting import WITHIN_S

BIN = Path(sys.executable).parent
# A network of its own, where no other process uses the ports.
NAMESPACE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
INSIDE = [*NAMESPACE, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


# A client, a gateway and a server, each in a network of its own, and a cable that goes past the gateway, as that of a
# management network does: 10.81.0.0/24 and 10.82.0.0/24 lead through the gateway, 10.90.0.0/24 does not.
THREE_HOSTS = """
trap 'kill $client $gateway $server' EXIT
for host in client gateway server; do
    unshare --net sleep 600 & eval $host=$!
    echo $! >"$FOLDER/$host.pid"
    until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
done
on() { pid=$1; shift; nsenter --net=/proc/$pid/ns/net "$@"; }
cable() {
    ip link add name near netns $1 type veth peer name far netns $3
    on $1 ip link set near name $5; on $1 ip addr add $2/24 dev $5; on $1 ip link set $5 up
    on $3 ip link set far name $5; on $3 ip addr add $4/24 dev $5; on $3 ip link set $5 up
}
for pid in $client $gateway $server; do on $pid ip link set lo up; done
cable $client 10.81.0.2 $gateway 10.81.0.1 wan
cable $gateway 10.82.0.1 $server 10.82.0.2 lan
cable $client 10.90.0.1 $server 10.90.0.2 management
on $gateway sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
on $client ip route add 10.82.0.0/24 via 10.81.0.1
on $server ip route add 10.81.0.0/24 via 10.82.0.1
"$@"
"""
# What `ssh ... -- HOST COMMAND` is to do: run the command's line in the host's network.
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
exec env XDG_CACHE_HOME="$FOLDER/cache" nsenter --net=/proc/$(cat "$FOLDER/$2.pid")/ns/net sh -c "$3"
"""


def run_three_hosts(folder: Path, plan: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a plan on the three hosts, to one document on stdout. `command` is what `leadline` is, after which its words
    follow."""
    (folder / "plan.yaml").write_text(plan)
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(SSH)
    (folder / "bin" / "ssh").chmod(0o755)
    environment = {**os.environ, "FOLDER": str(folder), "PATH": f"{folder / 'bin'}:{BIN}:{os.environ['PATH']}"}
    words = [*command, "run", str(folder / "plan.yaml"), "--json", "--out", str(folder / "runs")]
    argv = [*INSIDE, "sh", "-ec", THREE_HOSTS, "sh", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False, env=environment)
