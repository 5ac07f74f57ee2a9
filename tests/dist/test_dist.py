"""What `make dist` builds, installed as a user does who has neither Rust nor the source tree.

The agent is built by the tests' profile here; everything else is as in a release.
"""

from __future__ import annotations

import email
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from report_page import packed_cases

# Each is larger than all that is installed, and none of them is needed to measure and to report.
LARGE_LIBRARIES = {"duckdb", "pandas", "polars", "pyarrow", "scipy"}

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
# Ends what it started; a server listens once its port takes a connection.
QUICK = """set -euo pipefail
ip link set lo up
leadline serve & server=$!
trap 'kill $server' EXIT
until (: > /dev/tcp/127.0.0.1/8080) 2>/dev/null; do sleep 0.02; done
leadline http http://127.0.0.1:8080/ -n 200 -c 2 --no-calibrate --json >figures.json
"""


def run(argv: list[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    folder = tmp_path_factory.mktemp("made") / "dist"
    checked = {**os.environ, "SETUPTOOLS_RUST_CARGO_PROFILE": "checked"}
    run(["make", "--no-print-directory", "dist", f"DIST={folder}"], ROOT, checked)
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a shell in which the wheel's commands are in the PATH, and cargo is not."""
    folder = tmp_path_factory.mktemp("user")
    bare = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder), "COLUMNS": "80"}
    assert shutil.which("cargo", path=bare["PATH"]) is None
    uv = str(ROOT / "scripts" / "uv")
    # The wheel's own dependencies, and no others. The lock file only states their versions, which are in the cache.
    made = {key: value for key, value in os.environ.items() if not key.startswith(("CARGO", "LEADLINE_AGENT"))}
    run([uv, "venv", "--quiet", "--python", sys.executable, str(folder / "venv")], folder, made)
    (wheel,) = dist.glob("*.whl")
    versions = ["--constraint", str(ROOT / "requirements.lock")]
    python = ["--python", str(folder / "venv/bin/python")]
    run([uv, "pip", "install", "--quiet", *python, *versions, str(wheel)], folder, made)
    return {**bare, "PATH": f"{folder / 'venv/bin'}:{bare['PATH']}"}


def test_archives_are_named_for_any_python_and_their_sums_match(dist: Path) -> None:
    version = "0.1.0"
    machine = os.uname().machine
    archives = {
        f"leadline-{version}-py3-none-manylinux2014_{machine}.whl",
        f"leadline-{version}.tar.gz",
        f"leadline-agent-{version}-{machine}-linux.tar.gz",
    }
    assert {path.name for path in dist.iterdir()} == {*archives, "SHA256SUMS"}
    lines = [line.split("  ") for line in (dist / "SHA256SUMS").read_text().splitlines()]
    sums = {name: checksum for checksum, name in lines}
    assert sums == {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in archives}


def test_wheel_asks_for_no_large_library_but_for_the_extra_that_writes_tables(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    wanted = {re.split(r"[^A-Za-z0-9._-]", line)[0].lower(): line for line in metadata.get_all("Requires-Dist", [])}
    assert "numpy" in wanted
    assert LARGE_LIBRARIES & set(wanted) == {"polars"}
    assert re.search(r"extra == ['\"]parquet['\"]", wanted["polars"])
    assert sorted(metadata.get_all("Provides-Extra") or []) == ["cloud", "parquet", "ray", "record"]


def test_installation_without_extras_holds_no_large_library(installed: Mapping[str, str], tmp_path: Path) -> None:
    listing = "import importlib.metadata as m; print(*(one.metadata['Name'].lower() for one in m.distributions()))"
    packages = set(run(["python", "-c", listing], tmp_path, installed).stdout.split())
    assert {"leadline", "numpy"} <= packages
    assert LARGE_LIBRARIES & packages == set()


def test_agents_tarball_holds_a_program_that_needs_no_library(dist: Path, tmp_path: Path) -> None:
    (tarball,) = dist.glob("leadline-agent-*.tar.gz")
    shutil.unpack_archive(tarball, tmp_path)
    (folder,) = tmp_path.iterdir()
    assert {path.name for path in folder.iterdir()} == {"leadline-agent", "LICENSE"}
    said = run([str(folder / "leadline-agent"), "--version"], tmp_path, {})
    assert said.stdout.startswith("leadline-agent 0.1.0")
    headers = run(["readelf", "--program-headers", str(folder / "leadline-agent")], tmp_path, {"PATH": "/usr/bin"})
    assert "INTERP" not in headers.stdout


def test_sdist_holds_every_source_file(dist: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    kept = run(["git", "ls-files", "crates", "python", "contract", "examples"], ROOT, os.environ)
    tracked = set(kept.stdout.split())
    with tarfile.open(dist / "leadline-0.1.0.tar.gz") as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert not tracked - packed
    assert {"Cargo.toml", "Cargo.lock", "setup.py", "pyproject.toml", "LICENSE"} <= packed


def test_installed_command_prints_the_commit_and_checks_the_host(installed: Mapping[str, str], tmp_path: Path) -> None:
    version = run(["leadline", "--version"], tmp_path, installed).stdout
    assert re.fullmatch(r"leadline 0\.1\.0 \(commit [0-9a-f]{7,}(-dirty)?\)\nleadline-agent 0\.1\.0 \(.+\) at .+\n", version)
    assert "io_uring" in run(["leadline", "doctor"], tmp_path, installed).stdout


@pytest.mark.lab
def test_installed_command_loads_its_own_server(installed: Mapping[str, str], tmp_path: Path) -> None:
    run([*NAMESPACE, "bash", "-c", QUICK], tmp_path, installed)
    document = json.loads((tmp_path / "figures.json").read_text())
    assert document["metrics"]["requests"]["value"] == 200
    assert document["errors"] == {}


@pytest.mark.lab
def test_installed_command_runs_the_demo_plan(installed: Mapping[str, str], tmp_path: Path) -> None:
    # Its examples are in the wheel: there is no source tree.
    text = run(["leadline", "plan", "--example", "demo"], tmp_path, installed).stdout
    assert text == (ROOT / "examples" / "demo.yaml").read_text()
    (tmp_path / "demo.yaml").write_text(text)
    argv = ["leadline", "run", "demo.yaml", "--only", "sut=route", "--set", "repeat=1"]
    said = run(argv, tmp_path, installed).stderr
    # No extra is installed.
    assert said.count("no parquet tables: polars is not installed") == 1
    assert not list(tmp_path.glob("runs/*/*.parquet"))
    (page,) = tmp_path.glob("runs/*/report.html")
    (case,) = packed_cases(page.read_text(encoding="utf-8"))
    measured = {"tcp", "rr", "http"}
    assert measured == {name for name in measured if f'"{name}"' in case}
    (trial,) = json.loads(page.with_name("findings.json").read_text())["run"]["trials"]
    assert (trial["sut"], trial["status"]) == ("route", "done")
    assert {test["test"] for test in trial["tests"] if test["status"] == "done"} == measured
    assert all(flow > 0 for test in trial["tests"] for flow in [test["clients"]["transfer_bytes"]])
