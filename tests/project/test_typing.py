"""The types of the public interface, under ``mypy --strict`` and pyright.

Every line of `good_cases.py` must pass. In `bad_cases.py`, exactly the lines with ``# refused`` must fail.

These tests take long, so they run in their own environment only: ``tox run -e types``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif("CI_TYPES" not in os.environ, reason="tox run -e types checks the types")

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "typing"
GOOD, BAD = CASES / "good_cases.py", CASES / "bad_cases.py"

Complaints = dict[int, list[str]]


def mypy(path: Path) -> Complaints:
    """Return mypy's messages for each line of a file."""
    output = run("mypy", "--strict", "--no-error-summary", "--hide-error-context", str(path))
    found: Complaints = {}
    for line in output.splitlines():
        match = re.fullmatch(rf".*{path.name}:(\d+): error: (.*)", line)
        if match:
            found.setdefault(int(match[1]), []).append(match[2])
        else:
            assert ": error:" not in line or "/typing/" not in line, line
    return found


def pyright(path: Path) -> Complaints:
    """Return pyright's messages for each line of a file."""
    report = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, str(path)))
    assert report["summary"]["filesAnalyzed"] == 1
    found: Complaints = {}
    for each in report["generalDiagnostics"]:
        if each["severity"] == "error":
            found.setdefault(each["range"]["start"]["line"] + 1, []).append(each["message"])
    return found


def run(tool: str, *options: str) -> str:
    """Return the output of a type checker. Fail if it, or Django's types for it, are not installed."""
    missing = [name for name in (tool, "mypy_django_plugin") if importlib.util.find_spec(name) is None]
    assert not missing, f"type checks need {', '.join(missing)}"
    done = subprocess.run(
        [sys.executable, "-m", tool, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("tool", [mypy, pyright])
def test_good_cases_are_accepted(tool: Callable[[Path], Complaints]) -> None:
    assert tool(GOOD) == {}


@pytest.mark.parametrize("tool", [mypy, pyright])
def test_bad_cases_are_refused_line_by_line(tool: Callable[[Path], Complaints]) -> None:
    lines = enumerate(BAD.read_text().splitlines(), start=1)
    expected = {number: line.strip() for number, line in lines if line.endswith("# refused")}
    found = tool(BAD)
    assert [line for number, line in expected.items() if number not in found] == []
    assert {number: messages for number, messages in found.items() if number not in expected} == {}
    assert len(expected) > 60
