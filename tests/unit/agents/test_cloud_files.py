"""What a fleet of machines is written as (tags, user data, inventory, files for ssh), and what is read of names."""

from __future__ import annotations

import asyncio
import io
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from made_cloud import START, MadeCloud
from ruamel.yaml import YAML

from leadline.agents.launchers.cloud import images
from leadline.agents.launchers.cloud.inventory import render_inventory
from leadline.agents.launchers.cloud.key_files import KEY, fleet_folder, make_folder, make_key, write_ssh_config
from leadline.agents.launchers.cloud.model import (
    CloudFleet,
    Group,
    Machine,
    Price,
    check_name,
    collect_fleets,
    describe_group,
    format_time,
    parse_group_end,
    parse_time,
)
from leadline.agents.launchers.cloud.prices import cost_per_hour, cost_so_far
from leadline.agents.launchers.cloud.ssh_ready import find_answering
from leadline.agents.launchers.cloud.user_data import halt_script
from leadline.errors import InputError

HOUR = timedelta(hours=1)


def machine(name: str = "i-1", fleet: str = "lab", kind: str = "m7i.large") -> Machine:
    return Machine(name, fleet, "running", kind, START, START + HOUR, "10.0.0.1", "198.51.100.1")


def test_end_is_the_same_after_a_tag_and_a_description() -> None:
    assert parse_time(format_time(START)) == START
    assert parse_group_end(describe_group(START)) == START
    assert [parse_time(text) for text in (None, "", "soon", "2026-11-29")] == [None] * 4
    assert parse_group_end("a group of other users") is None


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a b", "a_b", "a" * 41, "ä"])
def test_name_that_providers_would_not_take_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a fleet"):
        check_name(name)


def test_parts_without_machines_are_a_fleet_too() -> None:
    keys = ["leadline-fleet-c", "mine"]
    fleets = collect_fleets([machine(fleet="b")], [Group("sg", "a", START)], keys)
    assert [fleet.name for fleet in fleets] == ["a", "b", "c"]
    assert [fleet.is_expired(START) for fleet in fleets] == [True, False, True]
    assert [fleet.is_expired(START - HOUR) for fleet in fleets] == [False, False, True]


def test_costs_are_unknown_where_a_price_is() -> None:
    known: dict[str, Price | None] = {"m7i.large": Price(0.1, "2025-03"), "odd": None}
    fleet = CloudFleet("lab", [machine("i-1"), machine("i-2")])
    assert cost_per_hour(fleet, known) == pytest.approx(0.2)
    assert cost_so_far(fleet, known, START + 3 * HOUR) == pytest.approx(0.6)
    fleet.machines.append(machine("i-3", kind="odd"))
    assert (cost_per_hour(fleet, known), cost_so_far(fleet, known, START + HOUR)) == (None, None)


def test_inventory_is_yaml_of_names_and_addresses() -> None:
    text = render_inventory([machine("i-1"), machine("i-2")], "admin", ["aws us-east-1"], Path("/f/ssh_config"))
    assert text.startswith('# made by `leadline fleet up`\n# aws us-east-1\nssh_config: "/f/ssh_config"\nhosts:\n')
    hosts = YAML(typ="safe").load(io.StringIO(text))["hosts"]
    assert hosts == [{"name": f"lead-{place}", "ssh": "admin@198.51.100.1", "address": "10.0.0.1"} for place in (1, 2)]


def test_ssh_finds_key_and_known_hosts_by_name_and_address(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    make_folder(folder)
    make_key(folder, "lab")
    config = write_ssh_config(folder, "admin", [("lead-1", "198.51.100.1")])
    ssh = shutil.which("ssh")
    if ssh is None:
        pytest.skip("ssh is not installed")
    for name in ("lead-1", "198.51.100.1"):
        done = subprocess.run([ssh, "-G", "-F", config, name], capture_output=True, text=True, check=True)
        settings = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
        assert (settings["hostname"], settings["user"]) == ("198.51.100.1", "admin")
        assert settings["identityfile"].strip('"') == str(folder / KEY)
        assert settings["stricthostkeychecking"] in ("accept-new", "true")
    public = subprocess.run(["ssh-keygen", "-y", "-f", folder / KEY], capture_output=True, text=True, check=True)
    assert public.stdout.startswith("ssh-ed25519 ")


def test_fleet_folder_is_apart_for_each_region(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert fleet_folder(MadeCloud(), "lab") == tmp_path / "leadline/fleets/aws-us-east-1-lab"


def test_user_is_the_one_of_the_images_distribution() -> None:
    names = ["debian-13-amd64-20261001", "ubuntu/images/hvm-ssd/ubuntu-noble", "al2023-ami", "Rocky-9-EC2"]
    assert [images.find_user(name, "aws") for name in names] == ["admin", "ubuntu", "ec2-user", "rocky"]
    assert images.find_user("Debian 13", "openstack") == "debian"
    with pytest.raises(InputError, match="name it with --user"):
        images.find_user("golden", "aws")


def test_newest_release_of_debian_ranks_highest() -> None:
    names = [
        "Ubuntu 24.04",
        "debian-12-generic",
        "Debian GNU/Linux 13",
        "ubuntu-jammy-server",
        "CentOS 9",
        "debian-13-daily",
    ]
    ranked = {name: rank for name in names if (rank := images.rank_cloud_image(name))}
    assert sorted(ranked, key=lambda name: ranked[name], reverse=True) == [
        "Debian GNU/Linux 13", "debian-12-generic", "Ubuntu 24.04", "ubuntu-jammy-server",
    ]  # fmt: skip


def test_image_for_another_architecture_is_known_by_its_name() -> None:
    assert images.is_for("debian-13-arm64", "aarch64") and not images.is_for("debian-13-arm64", "x86_64")
    assert images.is_for("Debian 13", "x86_64")


async def test_only_a_server_that_speaks_ssh_answers() -> None:
    async def speak_ssh(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"SSH-2.0-OpenSSH_9.2\r\n" if writer.get_extra_info("sockname")[0] == "127.0.0.2" else b"HTTP/1.1 "
        )
        writer.close()

    server = await asyncio.start_server(speak_ssh, ["127.0.0.2"], 0)
    port = server.sockets[0].getsockname()[1]
    other = await asyncio.start_server(speak_ssh, ["127.0.0.3"], port)
    async with server, other:
        addresses = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
        assert await asyncio.to_thread(find_answering, addresses, port) == {"127.0.0.2"}


def test_script_is_short_enough_for_every_provider() -> None:
    end = datetime(2026, 11, 29, 14, 0, 0, tzinfo=UTC)
    script = halt_script("a" * 40, end, 7 * 86400)
    assert len(script.encode()) < 8192, "EC2 takes 16 kB of user data, and libcloud sends them in an address"
    assert script.startswith("#!/bin/sh\n")
