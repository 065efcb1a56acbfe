"""``manage.py pgqueue database``."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command

from django_pgqueue.monitoring import database as parts

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("pgqueue", "database", *arguments, stdout=out)
    return out.getvalue()


def test_a_line_for_each_part_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run().splitlines()
    assert lines[0] == "Lock contention: fine. Nobody waits for a lock."
    assert sum(not line.startswith("  ") for line in lines) == 7
    monkeypatch.setattr(parts, "MOST_USED", 0)
    lines = run().splitlines()
    [place] = [place for place, line in enumerate(lines) if line.startswith("Connections: act. ")]
    assert lines[place + 1].startswith("  Act when more than 0% are in use")


def test_json() -> None:
    found = json.loads(run("--json", "--statements"))
    assert found["database"] == "default"
    parts = {part["code"]: part for part in found["parts"]}
    assert list(parts) == ["locks", "snapshots", "tables", "sessions", "traffic", "wakeups", "ring"]
    assert {part["state"] for part in parts.values()} <= {"fine", "act"}
    live = parts["tables"]["rows"][0]
    assert live["name"] == "pgqueue_job_live"
    assert live["table_bytes"] >= 0
    assert parts["ring"]["rows"] == [{"current": 1, "seconds": parts["ring"]["rows"][0]["seconds"],
                                      "retention": 7 * 86400.0}]  # fmt: skip
