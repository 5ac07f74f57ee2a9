"""A run's folder: its name, the paths in it, and an atomically written `run.json`. Of the content of these files it
knows only that of `run.json` as far as its readers rely on it.

runs/20261121T195200Z-gateway-3f2a9c/
  run.json journal.ndjson findings.json *.parquet logs/ profiles/ report.html
"""

from __future__ import annotations

import errno
import json
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from leadline.dataset import atomic
from leadline.dataset.finite_json import load_finite, replace_infinite
from leadline.errors import DatasetError, InputError

_CREATE_ATTEMPTS = 16
_LONGEST_NAME = 60
_WRONG_PLACE = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP}
_ELSEWHERE = "name another one with --out"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run on disk. Files are only appended to, except those that can be made from its journal."""

    path: Path

    @classmethod
    def create(cls, base: Path, name: str, *, now: datetime | None = None) -> RunFolder:
        """Create `<base>/<UTC time>-<name>-<short id>/` with `logs/`.

        Raises:
            InputError: no folder can be made there.
            DatasetError: the disk is full or failing.
        """
        stamp = (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
        for _ in range(_CREATE_ATTEMPTS):
            path = base / f"{stamp}-{_slug(name)}-{secrets.token_hex(3)}"
            try:
                base.mkdir(parents=True, exist_ok=True)
                path.mkdir()
                (path / "logs").mkdir()
                atomic.sync_folder(path)
                atomic.sync_folder(base)
            except FileExistsError as error:
                if not base.is_dir():
                    raise InputError(
                        f"cannot make a run folder in {base}: it is not a folder", hint=_ELSEWHERE
                    ) from error
                continue
            except OSError as error:
                if error.errno in _WRONG_PLACE:
                    raise InputError(
                        f"cannot make a run folder in {base}: {error.strerror}", hint=_ELSEWHERE
                    ) from error
                raise atomic.storage_error(path, error) from error
            return cls(path)
        raise DatasetError(f"cannot make a run folder in {base}: every name that was tried exists")

    @classmethod
    def begin(cls, base: Path, name: str, manifest: Callable[[str], dict[str, Any]]) -> RunFolder:
        """Create a folder and its manifest; `manifest` makes the manifest from the run's id."""
        folder = cls.create(base, name)
        folder.write_manifest(manifest(folder.run_id))
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run folder, also by a file in it; raises `InputError` if it is not one."""
        hint = "give the folder that `leadline run` printed"
        try:
            run = cls(path if path.is_dir() else path.parent)
            if not path.exists():
                raise InputError(f"no run at {path}", hint=hint)
            if not any(file.exists() for file in (run.manifest_path, run.journal_path, run.findings_path)):
                hint = "a run folder holds run.json and journal.ndjson"
                raise InputError(f"{path} is not {'' if path.is_dir() else 'in '}a run folder", hint=hint)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}", hint=hint) from None
        return run

    @property
    def run_id(self) -> str:
        """The folder's name, which is unique."""
        return self.path.resolve().name

    @property
    def manifest_path(self) -> Path:
        """Path of the manifest: plan, cases, order and fingerprints."""
        return self.path / "run.json"

    @property
    def journal_path(self) -> Path:
        """Path of the journal."""
        return self.path / "journal.ndjson"

    @property
    def findings_path(self) -> Path:
        """Path of the analysis."""
        return self.path / "findings.json"

    @property
    def logs_path(self) -> Path:
        """Folder of the daemons' logs."""
        return self.path / "logs"

    @property
    def profiles_path(self) -> Path:
        """Folder of the flame graphs."""
        return self.path / "profiles"

    @property
    def report_path(self) -> Path:
        """Path of the HTML report."""
        return self.path / "report.html"

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Replace `run.json`."""
        text = json.dumps(replace_infinite(manifest), indent=1, ensure_ascii=False, sort_keys=False) + "\n"
        atomic.replace(self.manifest_path, lambda temporary: _write_text(temporary, text))

    def read_manifest(self) -> dict[str, Any]:
        """The manifest; empty if the run was killed before it was written."""
        try:
            manifest = load_finite(self.manifest_path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise DatasetError(f"cannot read {self.manifest_path}: {error}") from error
        except RecursionError:
            raise DatasetError(f"cannot read {self.manifest_path}: it is nested too deeply") from None
        if not isinstance(manifest, dict):
            raise DatasetError(f"cannot read {self.manifest_path}: it is not a JSON object")
        if not isinstance(manifest.get("plan") or {}, dict):
            raise DatasetError(f"cannot read {self.manifest_path}: `plan` is not an object")
        cases = manifest.get("cases") or []
        if not isinstance(cases, list) or not all(map(_is_case, cases)):
            raise DatasetError(f"cannot read {self.manifest_path}: `cases` is not a list of cases with their tests")
        return manifest


def _is_case(case: object) -> bool:
    """Whether this is a case: an object that may have a name and a list of named tests."""
    if not isinstance(case, dict) or not isinstance(case.get("id", ""), str):
        return False
    tests = case.get("tests") or []
    return isinstance(tests, list) and all(
        isinstance(test, dict) and isinstance(test.get("name"), str) for test in tests
    )


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _slug(name: str) -> str:
    """A name that is safe in a path: letters, digits, `.`, `_` and `-`."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:_LONGEST_NAME].rstrip("-.")
    return slug or "run"
