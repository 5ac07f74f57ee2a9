"""The generated references of the commands and of findings.json are what the code says now."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from leadline.analysis.findings_json import encode_findings

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "unit" / "report"))

from sample_runs import gateway_run, many_trials  # noqa: E402


def test_the_reference_is_not_stale(tmp_path: Path) -> None:
    renewed = tmp_path / "commands.md"
    typer = Path(sys.executable).parent / "typer"
    argv = [str(typer), "leadline.cli.app", "utils", "docs", "--name", "leadline", "--output", str(renewed)]
    subprocess.run(argv, check=True, capture_output=True)
    committed = ROOT / "docs" / "reference" / "commands.md"
    assert renewed.read_text() == committed.read_text(), "stale: run `make reference`"


def test_the_reference_of_findings_is_not_stale(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts" / "findings_reference.py"), str(tmp_path)], check=True)
    for name in ("findings.schema.json", "findings.md"):
        committed = ROOT / "docs" / "reference" / name
        assert (tmp_path / name).read_text() == committed.read_text(), f"{name} is stale: run `make reference`"


def test_each_key_of_findings_has_a_description() -> None:
    schema = json.loads((ROOT / "docs" / "reference" / "findings.schema.json").read_text())
    records = {"the document": schema, **schema["$defs"]}
    silent = [
        f"{name}.{key}"
        for name, record in records.items()
        for key, described in record.get("properties", {}).items()
        if not described.get("description")
    ]
    assert silent == [], "say below or behind each of these fields what it is, and its unit"


def test_findings_are_what_their_published_schema_says() -> None:
    schema = json.loads((ROOT / "docs" / "reference" / "findings.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    for run in (gateway_run(), many_trials(20)):
        document = json.loads(encode_findings(run, "0.1.0", None))
        validator.validate(document)
    with pytest.raises(jsonschema.ValidationError, match=r"leadline\.findings/1"):
        validator.validate({**document, "schema": "leadline.findings/2"})
