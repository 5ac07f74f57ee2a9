"""Every example in the help of every command runs as it stands, in a network of its own where its addresses are.

What is shortened: a second becomes 50 ms, and of the VPN clients a twentieth comes.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
import typer
from test_documents import NAMESPACE, ROOT, commands, run_here, workplace

from leadline.agents import agent_binary
from leadline.cli.app import app
from leadline.dataset import Journal, RunFolder
from leadline.kinds.tunnel import wg_quick
from leadline.sut.wireguard import KeyPair
from waiting import WITHIN_S

__all__ = ["workplace"]
pytestmark = [pytest.mark.apart, pytest.mark.takes(20)]
COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
ANSWERED = ["http", "rr", "tcp", "udp"]
# What an example that names no time takes. A fleet's has room for what its examples do at a second of it.
LENGTHS = {**dict.fromkeys(ANSWERED, "500ms"), "tunnel": "2s"}
CONDITIONS = ("--target", "--find-rate", "--until-choke")
# Where every example's server is, with all of its ports.
SERVERS = [
    "ip address add 192.0.2.7/32 dev lo",
    "leadline serve --bind 0.0.0.0 &",
    "leadline serve --http --bind 0.0.0.0 --http-port 80 --https-port 443 &",
]
# Of the servers on this machine one.
ANY_SERVER = "$(pidof -s openvpn)"
# Beside the tests' own environment: mitmproxy holds packages back.
RECORDER = ROOT / ".venv-record" / "bin" / "leadline"
URLS = r"http://HOST:8080(/\S*)"


EXAMPLE = r"^(?:Example:|   ) +(leadline .*)$"


def command(name: str) -> click.Command:
    found: click.Command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    return found


def examples(name: str) -> list[str]:
    """The lines of a command's help that can be typed as they stand."""
    epilog = command(name).epilog or ""
    return re.findall(EXAMPLE, epilog, re.MULTILINE)


def hints(name: str) -> list[tuple[str, str]]:
    """Options that take conditions, with those that their help names: `--target`, `latency_p99_us < 2000`."""
    found = []
    for option in command(name).params:
        for text in re.findall(r"as in '([^']+)'", getattr(option, "help", None) or ""):
            found += [(flag, text) for flag in option.opts if flag in CONDITIONS]
    return found


def shortened(line: str) -> str:
    """A second becomes 50 ms; what has no time of its own is given one."""
    short = re.sub(r"\b(\d+)s\b", lambda found: f"{int(found[1]) * 50}ms", line)
    words = shlex.split(short)
    timed = {"-d", "--duration"} & set(words) or re.search(r"--rate \S+/\d+ms", short)
    if words[1] in LENGTHS and not timed:
        short = short.replace(f"leadline {words[1]}", f"leadline {words[1]} -d {LENGTHS[words[1]]}", 1)
    return short


def with_few_clients(line: str) -> str:
    few = re.sub(r"-n ([\d,]+)", lambda found: f"-n {','.join(str(int(n) // 20) for n in found[1].split(','))}", line)
    few = re.sub(r"--peers (\d+)", lambda found: f"--peers {int(found[1]) // 20}", few)
    return re.sub(r"--settled (\d+)", lambda found: f"--settled {int(found[1]) // 20}", few)


def wireguard_gateway(workplace: Path) -> list[str]:
    """A client's file, and the lines that start a gateway for the clients that the examples make of it."""
    own = KeyPair.generate()
    text = (
        f"[Interface]\nPrivateKey = {KeyPair.generate().private}\nAddress = 10.99.0.2/16\n"
        f"[Peer]\nPublicKey = {own.public}\nEndpoint = 127.0.0.1:51820\nAllowedIPs = 10.99.0.0/16\n"
    )
    (workplace / "wg0.conf").write_text(text)
    clients = [client for client, _ in wg_quick.make_clients(text, 50)]
    config = {
        **{"interface": "wg0", "mtu": 1420, "private_key": own.private, "listen_port": 51820},
        **{"listen_address": "127.0.0.1", "addresses": ["10.99.0.1/16"]},
        "peers": [
            {
                "public_key": one.public_key,
                "endpoint": None,
                "allowed_ips": [str(one.addresses[0].ip)],
                "keepalive_s": None,
            }
            for one in clients
        ],
    }
    file = workplace / "gateway.json"
    file.write_text(json.dumps(config))
    file.chmod(0o600)
    waiting = "until grep -q ready gateway.log; do sleep 0.1; done"
    return [f"{agent_binary()} wireguard {file} > gateway.log &", waiting]


def allowed(line: str) -> str:
    """A line of which a target may be missed or undecided, on a machine that others use."""
    return f"{line} || [[ $? = [34] ]]" if any(option in line for option in CONDITIONS) else line


def succeed(lines: list[str], workplace: Path) -> None:
    done = run_here(["set -x", *lines], workplace)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_an_example_that_it_understands(name: str) -> None:
    assert examples(name)
    for line in examples(name):
        words = shlex.split(line.partition(" > ")[0].replace(ANY_SERVER, "1"))
        assert words[:2] == ["leadline", name], line
        context = command(name).make_context(name, words[2:])
        below = getattr(command(name), "commands", {})
        if below:
            below[words[2]].make_context(words[2], words[3:], parent=context)


def test_each_subcommand_has_an_example_that_it_understands() -> None:
    """Those of `fleet` run in tests/lab/test_fleet_aws.py and test_fleet_openstack.py."""
    below = [(name, word) for name in COMMANDS for word in getattr(command(name), "commands", {})]
    assert below
    for name, word in below:
        part = command(name).commands[word]  # type: ignore[attr-defined]
        lines = re.findall(EXAMPLE, part.epilog or "", re.MULTILINE)
        assert lines
        for line in lines:
            words = shlex.split(line)
            assert words[:3] == ["leadline", name, word], line
            part.make_context(word, words[3:])


@pytest.mark.lab
@pytest.mark.parametrize("name", ANSWERED)
@pytest.mark.decided_by("nothing: any exit code of a target is right")
def test_examples_of_a_measurement_run(name: str, workplace: Path) -> None:
    (workplace / "mix.txt").write_text("weight=3 http://192.0.2.7/a\nhttp://192.0.2.7/b\n")
    (workplace / "script.lua").write_text("function init(args) wrk.path = '/' .. args[1] end\n")
    base = shortened(examples(name)[0])
    lines = [shortened(line) for line in examples(name)]
    # A search sets the rate itself.
    searching = re.sub(r" --rate \S+", "", base)
    lines += [f"{searching if option == '--find-rate' else base} {option} '{text}'" for option, text in hints(name)]
    assert hints(name), "--target has an example"
    succeed([*SERVERS, *map(allowed, lines)], workplace)


@pytest.mark.lab
@pytest.mark.takes(90)
@pytest.mark.decided_by("nothing: any exit code of a target is right")
def test_examples_of_tunnel_run(workplace: Path) -> None:
    if shutil.which("openvpn") is None:
        pytest.skip("openvpn is not installed, and cannot be without root")
    (workplace / "users.txt").write_text("alice:secret\nbob:secret\n")
    setup = [line for line in commands(ROOT / "docs" / "tunnel.md") if not line.startswith("leadline ")]
    # Clients without certificates of their own share the profile's.
    setup = [line.replace(" > server.log", " --duplicate-cn > server.log") for line in setup]
    own = [
        "cp server.key client.key",
        "openssl req -new -key client.key -out client.csr -subj /CN=client",
        "openssl x509 -req -in client.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out client.crt",
        "printf '%s\\n' 'cert client.crt' 'key client.key' >> client.ovpn",
    ]
    lines = [with_few_clients(shortened(line)) for line in examples("tunnel")]
    lines += [f"leadline tunnel client.ovpn -n 5 {option} '{text}'" for option, text in hints("tunnel")]
    server = next(number for number, line in enumerate(setup) if line.startswith("openvpn --dev tun"))
    servers = [setup[server], "server=$!", "leadline serve --bind 0.0.0.0 &", *wireguard_gateway(workplace)]
    lines = [allowed(line).replace(ANY_SERVER, "$server") for line in lines]
    # Users are for a profile that asks for them.
    with_users = next(number for number, line in enumerate(lines) if "--users" in line)
    lines.insert(with_users, "echo auth-user-pass users.txt >> client.ovpn")
    lines.append("leadline tunnel client.ovpn -n 5 --server-pid $server --json > cost.json")
    succeed([*setup[:server], *own, *servers, *lines], workplace)
    figures = json.loads((workplace / "cost.json").read_text())["metrics"]
    assert figures["server_cpu_s"]["value"] > 0, "each handshake costs the server CPU time"


@pytest.mark.lab
@pytest.mark.parametrize("name", ["crypto", "doctor", "plan", "run"])
@pytest.mark.decided_by("nothing: any exit code of a target is right")
def test_examples_of_a_command_without_a_server_run(name: str, workplace: Path) -> None:
    lines = [*examples(name)]
    if name == "run":
        lines += [f"leadline run examples/gateway.yaml --dry-run {option} '{text}'" for option, text in hints(name)]
    succeed(lines, workplace)


@pytest.mark.lab
@pytest.mark.parametrize("name", ["report", "results"])
def test_examples_of_a_command_that_reads_runs_run(name: str, workplace: Path) -> None:
    for _ in range(2):
        folder = RunFolder.create(workplace / "runs", "gateway")
        folder.write_manifest({"run_id": folder.run_id, "name": "gateway"})
        with Journal(folder.journal_path) as journal:
            journal.append({"record": "run-begin", "at_ns": 0})
            journal.append({"record": "run-end", "at_ns": 1, "status": "done"})
    succeed(examples(name), workplace)


@pytest.mark.lab
def test_examples_of_record_run(workplace: Path) -> None:
    """One without a command gets a request for its host through the proxy, and is ended then. Chromium opens a window:
    tests/lab/test_record_proxy.py runs it without one.
    """
    if not RECORDER.exists():
        pytest.skip("mitmproxy is not installed (make .venv-record/.installed)")
    program = workplace / ".venv/bin/leadline"
    program.rename(program.with_name("leadline-without-extra"))
    program.symlink_to(RECORDER)
    lines = [f"export XDG_DATA_HOME={workplace}/data", "leadline-without-extra serve &"]
    request = "curl -s -o page --proxy http://127.0.0.1:8888 -H 'Host: shop.test:8080' http://127.0.0.1:8080/"
    for line in examples("record"):
        if " -- " not in line:
            lines += [f"{line} & recorder=$!", f"until {request}; do kill -0 $recorder; sleep 0.1; done"]
            lines += ["kill -TERM $recorder", "wait $recorder"]
        elif " chromium " not in line:
            lines.append(line)
        written = re.search(r"-o (\S+)", line)
        assert written, line
        lines += [f"test -s {written[1]}"]
    succeed(lines, workplace)


@contextmanager
def served(line: str, folder: Path, quick: Path) -> Iterator[None]:
    """A server in a network of its own, until it is interrupted; it says where it listens before."""
    argv = [*NAMESPACE, "bash", "-c", f"ip link set lo up; exec {line.replace('leadline', str(quick), 1)}"]
    with subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        said = [server.stdout.readline()]
        while said[-1] and "listening" not in said[-1]:
            said.append(server.stdout.readline())
        assert "listening" in said[-1], said
        yield
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=WITHIN_S)
        assert server.returncode in (0, 130)


@pytest.mark.lab
@pytest.mark.parametrize("line", examples("serve"))
def test_examples_of_serve_listen(line: str, workplace: Path, quick_command: Path) -> None:
    (workplace / "key").write_text("a key that both know\n")
    (workplace / "key").chmod(0o600)
    if "--certificate" in line:
        subprocess.run(
            shlex.split(
                "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key "
                "-out server.pem -days 2 -subj /CN=server"
            ),
            cwd=workplace,
            check=True,
            capture_output=True,
        )
    with served(line, workplace, quick_command):
        pass


@pytest.mark.lab
def test_urls_in_the_help_of_serve_are_answered(workplace: Path) -> None:
    paths = re.findall(URLS, command("serve").epilog or "")
    assert paths
    lines = [f"leadline http 'http://127.0.0.1:8080{path}' -n 5" for path in paths]
    succeed(["leadline serve &", *lines], workplace)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.decided_by("nothing: no load runs")
def test_each_option_that_takes_a_condition_has_an_example(name: str) -> None:
    options = {flag for option in command(name).params for flag in option.opts} & set(CONDITIONS)
    exemplified = {option for option, _ in hints(name)} | {flag for flag in options if flag in " ".join(examples(name))}
    assert exemplified >= options


@pytest.mark.lab
@pytest.mark.parametrize("plan", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda plan: plan.name)
def test_commands_in_the_comments_of_a_plan_expand(plan: Path, workplace: Path) -> None:
    """As far as they go without measuring: the plans themselves run in tests/lab."""
    text = re.sub(r"\\\n# *", "", plan.read_text(encoding="utf-8"))
    lines = [line.rstrip() for line in re.findall(r"^# +(leadline run .*?)(?:   .*|  [a-z].*)?$", text, re.MULTILINE)]
    if lines:
        succeed([f"{line} --dry-run" for line in lines], workplace)
    assert len(lines) == plan.read_text(encoding="utf-8").count("leadline run ")
