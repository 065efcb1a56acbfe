"""``.ci/audit.py``: an index without advisories does not look like a clean environment."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / ".ci" / "audit.py"
BAD = {"name": "jinja2", "version": "2.10", "vulns": [{"id": "PYSEC-2019-217", "fix_versions": ["2.10.1"]}]}
CLEAN = {"name": "django", "version": "6.1.3", "vulns": []}
UNKNOWN = {"name": "django", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("known", "rest", "code", "said"),
    [
        ([BAD], [CLEAN], 0, "1 packages, 0 with"),
        ([BAD], [CLEAN, BAD], 1, "jinja2 2.10: PYSEC-2019-217 (fixed in 2.10.1)"),
        ([BAD], [CLEAN, UNKNOWN], 1, "does not know django"),
        ([{**BAD, "vulns": []}], [CLEAN], 0, "SKIPPED: audit"),
        ([UNKNOWN], [UNKNOWN], 0, "SKIPPED: audit"),
        ([], [], 0, "SKIPPED: audit"),
    ],
)
def test_what_it_says(
    known: list[Any], rest: list[Any], code: int, said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    program = runpy.run_path(str(PROGRAM))
    answers = iter([known, rest])
    main = program["main"]
    main.__globals__["advisories"] = lambda requirements: next(answers)
    assert main() == code
    assert said in capsys.readouterr().out
