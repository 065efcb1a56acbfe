"""The scripts of the page "The queue in a terminal", line by line."""

from __future__ import annotations

import re
import shlex
from io import StringIO

import pytest
from django.core.management import call_command
from django.utils import timezone

from django_pgqueue.models import Job, Pause
from tests.support.factories import JobFactory, WorkerFactory

from .shop import EXAMPLES

pytestmark = pytest.mark.django_db

TASK = "shop.tasks.send_receipt"


def pgqueue(line: str, more: str = "") -> str:
    """The output of a line ``python manage.py pgqueue ...``."""
    words = shlex.split(f"{line} {more}")
    assert words[:3] == ["python", "manage.py", "pgqueue"]
    out = StringIO()
    call_command(*words[2:], stdout=out)
    return out.getvalue()


def test_after_a_bad_deploy() -> None:
    failed = JobFactory.create(failed=True, task_path=TASK)
    JobFactory.create(failed=True, task_path="shop.tasks.other")
    lines = (EXAMPLES / "terminal/bad_deploy.sh").read_text().splitlines()
    said = [pgqueue(line).strip() for line in lines if not line.startswith("#")]
    assert said[0].startswith(f"Paused the task {TASK} until ")
    assert str(failed.pk) in said[1]
    assert said[2:] == [
        "1 failed job would run again. Nothing has changed.",
        f"Resumed the task {TASK}.",
        "1 job runs again.",
    ]
    assert list(Job.objects.filter(status="pending")) == [failed]
    assert not Pause.objects.exists()


def test_pipes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    failed = [JobFactory.create(failed=True, queue_name="mail").pk for _ in range(3)]
    worker = WorkerFactory.create(host="app-1", pid=7)
    running = JobFactory.create(running=True, worker=worker.pk, last_attempted_at=timezone.now())
    text = (EXAMPLES / "terminal/pipes.sh").read_text().replace("|\n", "|")
    choose, slowest = [line.split("|") for line in text.splitlines() if not line.startswith("#")]
    ids = pgqueue(choose[0]).split()
    assert ids == [str(pk) for pk in reversed(failed)]
    assert choose[2].split()[:2] == ["xargs", "-r"]
    assert pgqueue(choose[2].split("-r ")[1], " ".join(ids)) == "3 jobs run again.\n"
    monkeypatch.setattr("sys.stdin", StringIO(pgqueue(slowest[0])))
    exec((EXAMPLES / "terminal" / slowest[1].split()[1]).read_text(), {})  # noqa: S102
    printed = capsys.readouterr().out
    assert re.fullmatch(rf"{running.pk} tests\.app\.tasks\.add \d+ s on app-1:7\n", printed)
