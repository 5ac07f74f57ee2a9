"""Many client hosts, a gateway and a server, each a network of its own on this machine, reached as given hosts by
`nsenter`; an inventory names them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import cli_runs as cli
from separate_hosts import INSIDE

from waiting import WITHIN_S

# The clients are on one switch with the gateway, 10.83.0.0/16; the server is behind it, at 10.84.0.2.
_HOSTS = r"""
pids=
trap 'kill $pids' EXIT
start() { unshare --net sleep 600 & pids="$pids $!"; eval "$1=$!"; }
start gateway; start server
for number in $(seq "$CLIENTS"); do start client; clients="$clients $client"; done
for pid in $pids; do
    until [ "$(readlink /proc/$pid/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
done
on() { pid=$1; shift; nsenter --net=/proc/$pid/ns/net "$@"; }
{
    echo "link set lo up"
    echo "link add name switch type bridge"
    echo "address add 10.83.0.1/16 dev switch"
    echo "link set switch up"
    number=0
    for pid in $clients; do
        number=$((number + 1))
        echo "link add name port$number type veth peer name wan netns $pid"
        echo "link set port$number master switch up"
    done
    echo "link add name lan type veth peer name lan netns $server"
    echo "address add 10.84.0.1/24 dev lan"
    echo "link set lan up"
} | on $gateway ip -batch -
on $gateway sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
number=0
for pid in $clients; do
    number=$((number + 1))
    printf '%s\n' "link set lo up" "address add 10.83.1.$number/16 dev wan" "link set wan up" \
        "route add 10.84.0.0/24 via 10.83.0.1" | on $pid ip -batch -
    listed="$listed${listed:+, }\"exec:nsenter --net=/proc/$pid/ns/net --\""
done
printf '%s\n' "link set lo up" "address add 10.84.0.2/24 dev lan" "link set lan up" \
    "route add 10.83.0.0/16 via 10.84.0.1" | on $server ip -batch -
near="\"exec:nsenter --net=/proc/$gateway/ns/net --\""
far="{\"exec\": \"nsenter --net=/proc/$server/ns/net --\", \"address\": \"10.84.0.2\"}"
echo "{\"gateway\": $near, \"server\": $far, \"clients\": [$listed]}" >"$FOLDER/hosts.yaml"
"$@" --hosts "$FOLDER/hosts.yaml"
"$PYTHON" -c "$LEFT" $pids
"""
# Processes of the run that are left on a host.
_LEFT = """
import os, sys
from contextlib import suppress

def network(pid):
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/net")

hosts = {network(pid): pid for pid in sys.argv[1:]}
left = [pid for pid in os.listdir("/proc") if pid.isdigit() and network(pid) in hosts and pid not in hosts.values()]
for pid in left:
    with suppress(OSError), open(f"/proc/{pid}/cmdline") as file:
        print("left:", pid, file.read().replace(chr(0), " "), file=sys.stderr)
sys.exit(9 if left else 0)
"""


def run_on_many_hosts(
    plan: Path, folder: Path, *arguments: str, clients: int, command: Sequence[str | Path] = (cli.LEADLINE,)
) -> cli.Run:
    """Run a plan on this number of client hosts; it fails if a process of the run is left on one of them."""
    words = [*command, "run", plan, "--out", folder / "runs", *arguments]
    done = subprocess.run(
        [*INSIDE, "sh", "-ec", _HOSTS, "sh", *words],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env=cli.environment(
            {
                "CLIENTS": str(clients),
                "FOLDER": str(folder),
                "LEFT": _LEFT,
                "PYTHON": sys.executable,
                "XDG_CACHE_HOME": str(folder / "cache"),
            }
        ),
    )
    made = sorted((folder / "runs").iterdir()) if (folder / "runs").exists() else []
    assert made, done.stderr
    return cli.Run(made[-1], done.returncode, done.stdout, done.stderr)
