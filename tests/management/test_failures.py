"""``manage.py pgqueue failures``."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_pgqueue.monitoring.failures import mute
from tests.support.failures import fold, note

pytestmark = pytest.mark.django_db


@pytest.fixture
def _groups() -> None:
    connection.ensure_connection()
    raw = connection.connection
    note(raw, "f00", failed=2, retried=3, error_class="shop.Down", message="no\x1b[2J answer", version="v7",
         traceback="Traceback\n  File x\nshop.Down")  # fmt: skip
    note(raw, "f11", queue_name="mail", error_class="", message="", traceback="")
    fold(raw)


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("pgqueue", "failures", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.usefixtures("_groups")
def test_the_list() -> None:
    head, first, second = run().splitlines()
    assert head.split()[:3] == ["Fingerprint", "Failed", "Retried"]
    assert first.split()[:3] == ["f00", "2", "3"]
    assert "Down: no\\x1b[2J answer" in first
    assert "(no error)" in second
    assert len(run("--queue", "mail").splitlines()) == 2
    assert len(run("--limit", "1").splitlines()) == 2
    assert run("--task", "none", "--span", "1h") == "Nothing has failed in the last 1h.\n"
    assert run("--muted") == "No muted group has failed in the last 24h.\n"
    mute("default", ["f11"], "ann")
    assert "f11" in run("--muted")


@pytest.mark.usefixtures("_groups")
def test_one_group() -> None:
    text = run("f00", "--span", "7d")
    for part in (
        "shop.Down",
        "no\\x1b[2J answer",
        "  Last 7d:    2 failed, 3 retried",
        "  By version: v7 (2 failed",
    ):
        assert part in text
    assert text.endswith("Traceback\n  File x\nshop.Down\n")
    assert run("f11").endswith("(no traceback)\n")
    with pytest.raises(CommandError, match="There is no group of failures 'f22'"):
        run("f22")


@pytest.mark.usefixtures("_groups")
def test_json_and_redaction(settings: Any) -> None:
    settings.PGQUEUE = {"REDACT": ["re:answer|File x"]}
    found = json.loads(run("--json"))
    assert [(each["fingerprint"], each["failed"]) for each in found["groups"]] == [("f00", 2), ("f11", 1)]
    assert found["groups"][0]["message"] == "no\x1b[2J [redacted]"
    assert sum(point["retried"] for point in found["groups"][0]["points"]) == 3
    one = json.loads(run("f00", "--json"))
    assert one["by_version"] == {"v7": {"failed": 2, "retried": 3}}
    assert "File x" not in one["traceback"]
