"""A fleet's life over a provider in memory: it comes up whole, or leaves nothing; a removal names what it leaves."""

from __future__ import annotations

import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from made_cloud import START, MadeCloud, made_offer

from leadline.agents.launchers.cloud.life import bring_up, take_down
from leadline.agents.launchers.cloud.model import CloudFailed, Refused
from leadline.errors import InputError, Interrupted, LeadlineError


def test_fleet_comes_up_with_every_machine_named(tmp_path: Path) -> None:
    cloud = MadeCloud()
    fleet = bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=600)
    assert [machine.id for machine in fleet.machines] == ["i-0", "i-1", "i-2"]
    assert all(machine.state == "running" and machine.end == fleet.end for machine in fleet.machines)
    assert fleet.end == START + timedelta(hours=2)
    assert [line for line in cloud.lines if line.startswith("lead-2")] == [
        "lead-2 (i-1) runs, 198.51.100.2",
        "lead-2: SSH answers (2 of 3)",
    ]
    assert "shutdown -P" in cloud.user_data and "2026-11-29T14:00:00Z" in cloud.user_data


def test_generated_key_is_its_owners_alone(tmp_path: Path) -> None:
    cloud = MadeCloud()
    assert bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=600).has_own_key
    assert stat.S_IMODE((tmp_path / "lab").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "lab" / "key").stat().st_mode) == 0o600
    (public,) = cloud.keys.values()
    assert public.startswith("ssh-ed25519 ")


def test_named_key_is_used_and_never_removed(tmp_path: Path) -> None:
    cloud = MadeCloud()
    cloud.keys["mine"] = "ssh-ed25519 A"
    fleet = bring_up(cloud, made_offer(key="mine"), tmp_path / "lab", cloud.hooks(), wait_s=600)
    assert not fleet.has_own_key and not (tmp_path / "lab" / "key").exists()
    take_down(cloud, "lab", cloud.hooks())
    assert (list(cloud.keys), cloud.machines, cloud.groups) == (["mine"], {}, {})


@pytest.mark.parametrize("step", ["import_key", "create_group", "create_machines", "list_machines"])
@pytest.mark.parametrize("error", [Refused("no capacity", "X"), CloudFailed("no answer"), InputError("no such subnet")])
def test_failure_on_the_way_leaves_nothing(step: str, error: LeadlineError, tmp_path: Path) -> None:
    cloud = MadeCloud()
    is_asked_again = step == "list_machines" and isinstance(error, CloudFailed)
    cloud.failures[step] = [error] * (3 if is_asked_again else 1)
    with pytest.raises(type(error), match=str(error)):
        bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=600)
    assert cloud.is_empty() and not (tmp_path / "lab").exists()


def test_machines_that_appear_after_a_lost_answer_are_removed(tmp_path: Path) -> None:
    cloud = MadeCloud()
    cloud.failures["create_machines"] = [CloudFailed("no answer")]
    cloud.hidden_looks = 6
    with pytest.raises(CloudFailed):
        bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=600)
    assert cloud.is_empty()


def test_machines_that_are_listed_late_are_removed_after_an_interrupt(tmp_path: Path) -> None:
    cloud = MadeCloud()
    cloud.hidden_looks = 6
    cloud.stops_after = "are starting"
    with pytest.raises(Interrupted):
        bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=600)
    assert cloud.is_empty()


def test_one_look_without_an_answer_is_no_failure(tmp_path: Path) -> None:
    cloud = MadeCloud()
    cloud.failures["list_machines"] = [CloudFailed("no answer"), CloudFailed("no answer")]
    assert len(bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=600).machines) == 3
    assert cloud.lines.count("no answer; asking again") == 2


def test_keep_leaves_what_there_is_and_says_how_to_remove_it(tmp_path: Path) -> None:
    cloud = MadeCloud()
    cloud.failures["list_machines"] = [InputError("not allowed")]
    with pytest.raises(InputError):
        bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=600, is_kept=True)
    assert len(cloud.machines) == 3 and (tmp_path / "lab" / "key").exists()
    assert cloud.lines[-1] == "kept, until its end: leadline fleet down lab --provider aws --region us-east-1"


@pytest.mark.parametrize("line", ["key pair", "security group", "are starting", "lead-2 (i-1) runs"])
def test_interrupt_leaves_nothing(line: str, tmp_path: Path) -> None:
    cloud = MadeCloud()
    cloud.stops_after = line
    cloud.silent = {"198.51.100.3"}
    with pytest.raises(Interrupted):
        bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=600)
    assert cloud.is_empty() and not (tmp_path / "lab").exists()


def test_silent_machine_is_named_when_the_time_is_over(tmp_path: Path) -> None:
    cloud = MadeCloud()
    cloud.silent = {"198.51.100.2"}
    with pytest.raises(CloudFailed, match=r"after 60 s 2 of 3 machines are ready; not ready: lead-2 \(running, 198"):
        bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=60)
    assert cloud.is_empty()


def test_without_waiting_for_ssh_nothing_is_probed(tmp_path: Path) -> None:
    cloud = MadeCloud()
    cloud.silent = {f"198.51.100.{place}" for place in (1, 2, 3)}
    assert len(bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=0).machines) == 3


def test_machine_that_ends_while_it_starts_fails_the_fleet(tmp_path: Path) -> None:
    cloud = MadeCloud(start_looks=9)
    create = cloud.create_machines

    def create_one_that_ends(*arguments: object) -> None:
        create(*arguments)  # type: ignore[arg-type]
        cloud.delete_machines([cloud.machines["i-1"]])

    cloud.create_machines = create_one_that_ends  # type: ignore[method-assign, assignment]
    with pytest.raises(CloudFailed, match=r"lead-2 \(i-1\) did not start, and is ending"):
        bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=600)
    assert cloud.is_empty()


def test_fleet_that_cannot_be_used_is_removed(tmp_path: Path) -> None:
    cloud = MadeCloud()

    def use(_: object) -> None:
        raise InputError("--out: no space left")

    with pytest.raises(InputError, match="no space left"):
        bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=600, use=use)
    assert cloud.is_empty()


def test_fleet_of_a_name_that_is_there_is_refused_and_stays(tmp_path: Path) -> None:
    cloud = MadeCloud()
    bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=0)
    with pytest.raises(InputError, match="there is a fleet lab already"):
        bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=0)
    assert len(cloud.machines) == 3 and (tmp_path / "lab" / "key").exists()


def test_removal_counts_and_may_be_repeated(tmp_path: Path) -> None:
    cloud = MadeCloud()
    bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=0)
    first = take_down(cloud, "lab", cloud.hooks())
    assert (first.machines, first.groups, first.keys, first.left) == (3, 1, 1, [])
    again = take_down(cloud, "lab", cloud.hooks())
    assert (again.machines, again.groups, again.keys, again.left) == (0, 0, 0, [])


def test_removal_leaves_other_fleets_alone(tmp_path: Path) -> None:
    cloud = MadeCloud()
    bring_up(cloud, made_offer(name="one"), tmp_path / "one", cloud.hooks(), wait_s=0)
    take_down(cloud, "two", cloud.hooks())
    assert len(cloud.machines) == 3 and len(cloud.groups) == 1 and len(cloud.keys) == 1


def _in_use() -> Exception:
    return Refused("the group is in use", "DependencyViolation")


def _forbidden() -> Exception:
    return InputError("not allowed")


@pytest.mark.parametrize(
    ("make", "times", "is_left"), [(_in_use, 5, False), (_in_use, 500, True), (_forbidden, 1, True)]
)
def test_group_in_use_is_removed_later_or_named(
    make: Callable[[], Exception], times: int, is_left: bool, tmp_path: Path
) -> None:
    cloud = MadeCloud()
    bring_up(cloud, made_offer(), tmp_path / "lab", cloud.hooks(), wait_s=0)
    cloud.failures["delete_group"] = [make() for _ in range(times)]
    removal = take_down(cloud, "lab", cloud.hooks())
    assert bool(removal.left) == is_left and removal.keys == 1
    assert all(left.startswith("the security group sg-1 (") for left in removal.left)


def test_machine_that_does_not_end_is_named(tmp_path: Path) -> None:
    cloud = MadeCloud(end_looks=10_000)
    bring_up(cloud, made_offer(count=1), tmp_path / "lab", cloud.hooks(), wait_s=0)
    assert take_down(cloud, "lab", cloud.hooks()).left == ["the machine i-0 (ending)"]


def test_removal_that_a_provider_does_not_answer_says_so() -> None:
    cloud = MadeCloud()
    cloud.failures["list_machines"] = [CloudFailed("aws cannot be reached")] * 3
    assert take_down(cloud, "lab", cloud.hooks()).left == ["the fleet lab (aws cannot be reached)"]
