"""The jail: getting in, signals, statuses, and nothing left however it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_scripts import UNPRIVILEGED_UID, JailUser, await_death, jail_user, network_names

pytestmark = [pytest.mark.lab, pytest.mark.takes(25)]

# A run that made a lab with something at work in it, and says so. The worker is heard first: while a process becomes
# another program, and this one does so twice, it has no arguments by which it could be found.
BUSY = """
inside = enter()
lab = Lab.build(topology.remote_access(1, LinkSpec()), "c01/1")
sleep = [sys.executable, "-c", "import time; print('at work', flush=True); time.sleep(600)", sys.argv[1]]
worker = subprocess.Popen([*lab.launch_prefix("server"), *sleep], stdout=subprocess.PIPE)
assert worker.stdout.readline() == b"at work\\n"
if lab.hosts["server"].cgroup:
    (lab.hosts["server"].cgroup / "cgroup.procs").write_text(str(worker.pid))
print_json(pid=os.getpid(), cgroup=inside.cgroup, reason=inside.cgroup_reason)
"""


@pytest.fixture(params=["root", "nobody"])
def who(request: pytest.FixtureRequest) -> Iterator[JailUser]:
    with jail_user(request.param) as user:
        yield user


@pytest.fixture(params=[pytest.param("root", marks=pytest.mark.full_matrix), "nobody"])
def either(request: pytest.FixtureRequest) -> Iterator[JailUser]:
    """For what rights may change: in `make test` the user who has fewer."""
    with jail_user(request.param) as user:
        yield user


@pytest.fixture
def anyone() -> Iterator[JailUser]:
    """The user who runs the tests."""
    with jail_user("root" if os.geteuid() == 0 else "nobody") as user:
        yield user


def test_inside_is_pid_1_of_its_own_session_and_sees_only_itself(who: JailUser) -> None:
    [said] = who.run("""
inside = enter()
pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
links = [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]
print_json(pid=os.getpid(), uid=os.getuid(), session=os.getsid(0), pids=pids, links=links, rootless=inside.rootless)
""")
    assert said == {
        "pid": 1,
        "uid": 0,
        "session": 1,
        "pids": [1],
        "links": ["lo"],
        "rootless": who.name != "root",
    }
    assert who.left_behind() == []


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(7)", 7),
        ("raise RuntimeError('on purpose')", 1),
        ("raise KeyboardInterrupt", 130),
        ("sys.exit(130)", 130),
    ],
)
def test_the_status_is_the_insides_and_nothing_is_left(either: JailUser, ending: str, status: int) -> None:
    before = network_names()
    program = either.start(BUSY + ending)
    program.next_message()
    _, _, code = program.finish()
    assert code == status
    assert (program.processes(), either.left_behind(), network_names()) == (set(), [], before)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 137)]
)
def test_signals_to_the_outside_end_everything(either: JailUser, number: signal.Signals, status: int) -> None:
    program = either.start(BUSY + "wait()")
    program.next_message()
    program.process.send_signal(number)
    _, _, code = program.finish()
    assert code == status
    assert (program.processes(), either.left_behind()) == (set(), [])


def test_a_ctrl_c_arrives_once(either: JailUser) -> None:
    """A terminal sends SIGINT to the whole foreground group; inside, it must arrive through the keeper alone."""
    program = either.start(
        """
enter()
seen = []
signal.signal(signal.SIGINT, lambda *_: (seen.append(1), print_json(so_far=len(seen))))
signal.signal(signal.SIGTERM, lambda *_: (print_json(seen=len(seen)), sys.exit(5)))
print_json(ready=True)
wait()
""",
        start_new_session=True,
    )
    program.next_message()
    for times in (1, 2):
        os.killpg(program.process.pid, signal.SIGINT)
        assert program.next_message() == {"so_far": times}
    program.process.send_signal(signal.SIGTERM)
    assert program.next_message() == {"seen": 2}
    assert program.finish()[2] == 5


def test_a_hangup_that_was_ignored_before_stays_ignored(anyone: JailUser) -> None:
    program = anyone.start(
        "enter(); print_json(ready=True); wait()",
        wrap=["sh", "-c", 'trap "" HUP; exec "$@"', "sh"],
    )
    program.next_message()
    program.process.send_signal(signal.SIGHUP)
    program.process.send_signal(signal.SIGTERM)
    assert program.finish()[2] == 143


def test_killing_the_outside_ends_the_inside_and_the_next_start_sweeps(who: JailUser) -> None:
    before = network_names()
    program = who.start(BUSY + "wait()")
    program.next_message()
    everyone = program.processes()
    assert len(everyone) == 3  # keeper, inmate, worker
    program.process.kill()
    program.finish()
    await_death(everyone)
    assert network_names() == before
    assert len(who.folders()) == 1  # its group may be gone: any start on this machine sweeps those of the dead
    who.run("enter()")
    assert (program.processes(), who.left_behind()) == (set(), [])


def test_killing_the_inside_ends_the_outside_which_cleans_up(either: JailUser) -> None:
    program = either.start(BUSY + "wait()")
    program.next_message()
    os.kill(program.inmate(), signal.SIGKILL)
    _, _, code = program.finish()
    assert code == 137
    assert (program.processes(), either.left_behind()) == (set(), [])


def test_a_start_leaves_a_living_run_alone(either: JailUser) -> None:
    first = either.start(BUSY + "wait()")
    first.next_message()
    there = either.left_behind()
    assert there
    either.run("enter()")
    assert either.left_behind() == there
    first.process.send_signal(signal.SIGTERM)
    assert first.finish()[2] == 143
    assert either.left_behind() == []


def test_two_runs_at_once_do_not_collide(either: JailUser) -> None:
    runs = [either.start(BUSY + "wait()") for _ in range(2)]
    assert [run.next_message()["pid"] for run in runs] == [1, 1]
    for run in runs:
        run.process.send_signal(signal.SIGTERM)
    assert [run.finish()[2] for run in runs] == [143, 143]
    assert either.left_behind() == []


def test_a_jail_inside_a_jail(anyone: JailUser) -> None:
    """Pids mean something else in there, so a start inside must not take the outer run for dead and sweep it."""
    nested = "import json, os; from leadline.lab import jail; jail.enter('in'); print(json.dumps({'pid': os.getpid()}))"
    outer = anyone.start(f"""
enter()
subprocess.run([sys.executable, "-c", {nested!r}], check=True)
print_json(ended=True)
wait()
""")
    assert [outer.next_message(), outer.next_message()] == [{"pid": 1}, {"ended": True}]
    assert [name for name in anyone.left_behind() if name.startswith(f"leadline-{outer.process.pid}-")]
    outer.process.send_signal(signal.SIGTERM)
    assert outer.finish()[2] == 143
    assert anyone.left_behind() == []


def test_no_root_and_no_user_namespaces(anyone: JailUser) -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    wrap = ["unshare", "-Ur", "sh", "-c", forbid, "sh", "setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    out, err, code = anyone.start("enter(); print_json(never=True)", wrap=wrap).finish()
    assert (out, code) == ("", 2)
    assert err == (
        "hosts cannot be created on this machine: root here lacks CAP_SYS_ADMIN or CAP_NET_ADMIN, and "
        "user.max_user_namespaces is 0; allow it with `sudo sysctl -w user.max_user_namespaces=15000`, "
        "or, in a container, start it with `--privileged`\n"
    )
    assert anyone.left_behind() == []


def test_a_container_that_hides_part_of_proc() -> None:
    """What a container engine's masked paths do to a user namespace: the kernel refuses a fresh /proc."""
    if os.geteuid() != 0:
        pytest.skip("only root can hide a part of /proc")
    with jail_user("nobody") as user:
        hide = 'mount -t tmpfs none /proc/bus && exec "$@"'
        out, err, code = user.start("enter()", wrap=["unshare", "-m", "sh", "-c", hide, "sh"]).finish()
        assert (out, code, err.count("\n")) == ("", 2, 1)
        assert "refused to mount /proc (Operation not permitted)" in err
        assert user.left_behind() == []


def test_limits_of_one_kind_are_named(anyone: JailUser) -> None:
    forbid = 'echo 0 > /proc/sys/user/max_net_namespaces; exec "$@"'
    _, err, code = anyone.start("enter()", wrap=["unshare", "-Ur", "sh", "-c", forbid, "sh"]).finish()
    assert code == 2
    assert "user.max_net_namespaces is 0; allow it with `sudo sysctl -w user.max_net_namespaces=15000`" in err


def test_threads_come_after_the_jail(anyone: JailUser) -> None:
    [said] = anyone.run("""
import threading
done = threading.Event()
threading.Thread(target=done.wait).start()
try:
    jail.enter("late")
except LeadlineError as error:
    print_json(error=str(error))
done.set()
""")
    assert said == {"error": "a jail can't be entered once threads run"}


def test_a_user_may_use_a_group_that_was_delegated(anyone: JailUser) -> None:
    """Rootless with cgroups, as in a systemd user session: the group that the run is in belongs to the user."""
    if os.geteuid() != 0:
        pytest.skip("only root can delegate a group")
    place = anyone.run("from leadline.lab import cgroups; found = cgroups.find_parent(); print_json(path=found.path)")[
        0
    ]["path"]
    if place is None:
        pytest.skip("no writable cgroup v2 here")
    delegated = Path(place) / f"test-delegated-{os.getpid()}"
    delegated.mkdir()
    try:
        for path in (delegated, delegated / "cgroup.procs"):
            os.chown(path, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
        join = f'echo $$ > {delegated}/cgroup.procs; exec "$@"'
        with jail_user("nobody") as user:
            program = user.start(BUSY + "wait()", wrap=["sh", "-c", join, "sh"])
            said = program.next_message()
            assert said["cgroup"].startswith(f"{delegated}/leadline-"), said["reason"]
            assert "populated 1" in (Path(said["cgroup"]) / "server" / "cgroup.events").read_text()
            program.process.send_signal(signal.SIGTERM)
            assert program.finish()[2] == 143
            assert list(delegated.glob("leadline-*")) == []
    finally:
        delegated.rmdir()
