"""Many rows: each measured in a process of its own, by the benchmark that measures ten times as many."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the benchmark reads /proc")

ROOT = Path(__file__).parents[2]


def bench(*options: str) -> Any:
    command = [sys.executable, "-m", "bench", "--json", *options]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120).stdout)


def test_ten_thousand_rows_are_submitted_at_once_and_take_less_than_2_kb_each() -> None:
    cost = bench("--submit", "10000")
    assert cost["rows"] == 10_000
    assert cost["bytes_a_run"] < 2048
    assert cost["most_mb"] < 150
    # A hundred thousand may take a minute; these take a second where nothing else runs.
    assert cost["check_seconds"] + cost["submit_seconds"] < 20


def test_rows_are_checked_in_bounded_memory() -> None:
    assert bench("--check", "200000")["check_mb"] < 60
