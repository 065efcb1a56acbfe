"""``pgqueue run-here``, as far as it does not need a worker: what it shows of the end of a job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.test import override_settings

from django_pgqueue.management.subcommands import jobs as subcommand

CARD = "4111-1111-1111-1111"


@override_settings(PGQUEUE={"REDACT": [r"re:\d{4}(-\d{4}){3}"]})
def test_what_must_not_be_shown_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    result = SimpleNamespace(
        row=SimpleNamespace(id=5, task_path="tests.app.tasks.noop", attempts=1),
        outcome=SimpleNamespace(kind="failed", reason=f"card {CARD} is refused", result=None),
        error=ValueError(f"card {CARD} of ann"),
        ran=0.1,
    )
    monkeypatch.setattr(subcommand, "run_job", lambda pk, alias: result)
    options: dict[str, Any] = {"job": (None, 5), "database": "default", "pdb": False}
    answer = subcommand.run_here(options)
    printed = "\n".join(map(str, answer.text))
    assert "ValueError: card [redacted] of ann" in printed
    assert answer.error.endswith("failed (card [redacted] is refused).")
    assert CARD not in printed + answer.error
