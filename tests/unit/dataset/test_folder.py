"""Run folders: names that sort by time and are safe in a path, manifests that are whole or absent."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from leadline.dataset import RunFolder
from leadline.errors import DatasetError, InputError

NOON = datetime(2026, 3, 4, 12, 30, 5, tzinfo=UTC)


def test_the_name_holds_time_name_and_a_short_id(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "runs", "Open VPN/../throughput", now=NOON)
    assert re.fullmatch(r"20260304T123005Z-Open-VPN-..-throughput-[0-9a-f]{6}", run.run_id)
    assert run.path.parent == tmp_path / "runs"
    assert run.logs_path.is_dir()


def test_two_runs_of_one_second_are_two_folders(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path, "x", now=NOON).path != RunFolder.create(tmp_path, "x", now=NOON).path


def test_a_name_of_nothing_safe_becomes_run(tmp_path: Path) -> None:
    assert "-run-" in RunFolder.create(tmp_path, "///", now=NOON).run_id


def test_the_manifest_is_replaced_as_a_whole(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "x")
    run.write_manifest({"plan": {"name": "ä"}, "cases": [{"id": "c01"}]})
    run.write_manifest({"plan": {"name": "b"}})
    assert RunFolder.open(run.path).read_manifest() == {"plan": {"name": "b"}}
    assert sorted(path.name for path in run.path.iterdir()) == ["logs", "run.json"]


def test_open_takes_the_folder_or_a_file_in_it(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "x")
    run.journal_path.write_bytes(b"")
    assert RunFolder.open(run.path) == run
    assert RunFolder.open(run.journal_path) == run
    assert run.read_manifest() == {}


def test_open_refuses_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run folder"):
        RunFolder.open(tmp_path)
    with pytest.raises(InputError, match="no run at"):
        RunFolder.open(tmp_path / "none")
    (tmp_path / "a.yaml").write_bytes(b"")
    with pytest.raises(InputError, match=r"a\.yaml is not in a run folder"):
        RunFolder.open(tmp_path / "a.yaml")


def test_a_garbled_manifest_is_an_error(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "x")
    run.manifest_path.write_text("[1, 2")
    with pytest.raises(DatasetError, match=r"run\.json"):
        run.read_manifest()
    run.manifest_path.write_text("[1]")
    with pytest.raises(DatasetError, match="not a JSON object"):
        run.read_manifest()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 100_000, "it is nested too deeply"),
        ('{"cases": [{"id": "c01", "rate": 1e400}]}', r"cases\[0\]\.rate is beyond the range of numbers"),
        ('{"plan": {"a.b": [1, NaN]}, "text": "Infinity"}', r"plan\.a\.b\[1\] is NaN"),
        ('{"plan": 5}', "`plan` is not an object"),
        ('{"plan": [1]}', "`plan` is not an object"),
        ('{"cases": 5}', "`cases` is not a list of cases"),
        ('{"cases": [1]}', "`cases` is not a list of cases"),
        ('{"cases": [{"id": []}]}', "`cases` is not a list of cases"),
        ('{"cases": [{"id": "c01", "tests": [{}]}]}', "`cases` is not a list of cases"),
    ],
)
def test_manifest_of_another_form_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    run = RunFolder.create(tmp_path, "x")
    run.manifest_path.write_text(text)
    with pytest.raises(DatasetError, match=rf"cannot read .*run\.json: {says}"):
        run.read_manifest()


def test_a_file_where_the_base_should_be_is_an_error(tmp_path: Path) -> None:
    base = tmp_path / "file"
    base.write_text("")
    for place in (base, base / "below"):
        with pytest.raises(InputError, match="cannot make a run folder in"):
            RunFolder.create(place, "x")
