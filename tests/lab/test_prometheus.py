"""The real Prometheus takes what `leadline export` sends and writes, and gives the figures back at their times."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest

from leadline.cli import remote_write_client as client
from leadline.report import exports, remote_write
from waiting import free_port, until

# The sample runs are the unit tests' own.
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))

from sample_runs import gateway_run

pytestmark = [pytest.mark.full_matrix, pytest.mark.takes(10)]
BEGAN_S = 1_790_000_000.0


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus on loopback that scrapes nothing."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed (Debian: prometheus)")
    port = free_port()
    (tmp_path / "none.yml").write_text("scrape_configs: []\n")
    options = {
        "config.file": tmp_path / "none.yml",
        "storage.tsdb.path": tmp_path / "data",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    argv = [program, "--web.enable-remote-write-receiver", *(f"--{name}={value}" for name, value in options.items())]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            until(lambda: is_ready(url) or process.poll() is not None)
            assert process.poll() is None, (tmp_path / "log").read_text()
            yield url
        finally:
            process.terminate()


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def ask(url: str, query: str, at_s: float) -> list[dict[str, object]]:
    with urllib.request.urlopen(f"{url}/api/v1/query?{urlencode({'query': query, 'time': at_s})}", timeout=5) as answer:
        found: list[dict[str, object]] = json.load(answer)["data"]["result"]
    return found


def test_prometheus_gives_back_what_was_sent(prometheus: str) -> None:
    run = gateway_run()
    trials = [
        replace(trial, tests=tuple(replace(test, started_at_s=BEGAN_S + 600 * number) for test in trial.tests))
        for number, trial in enumerate(run.trials)
    ]
    samples = remote_write.samples_of([replace(run, trials=tuple(trials))])
    assert len(samples) > 50
    bodies = list(remote_write.requests_of(samples, 20))
    assert client.send(f"{prometheus}/api/v1/write", bodies, remote_write.HEADERS, None) == len(bodies)
    for at_ms, value, labels in samples:
        selector = ",".join(f"{name}={json.dumps(text)}" for name, text in labels if name != "__name__")
        (found,) = ask(prometheus, f"{dict(labels)['__name__']}{{{selector}}}", at_ms / 1000)
        assert found["metric"] == dict(labels)
        assert float(found["value"][1]) == pytest.approx(value)  # type: ignore[index]


def test_promtool_reads_openmetrics(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("Prometheus is not installed (Debian: prometheus)")
    run = replace(gateway_run(), started_at="2026-01-31T02:00:00+00:00")
    text = exports.openmetrics([run])
    (tmp_path / "figures.txt").write_text(text)
    argv = [
        promtool,
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        str(tmp_path / "figures.txt"),
        str(tmp_path / "blocks"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = [line for line in text.splitlines() if not line.startswith("#")]
    (tmp_path / "blocks" / "wal").mkdir()  # `dump` asks for one
    listed = subprocess.run(
        [promtool, "tsdb", "dump", str(tmp_path / "blocks")], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(listed) == len(written)
