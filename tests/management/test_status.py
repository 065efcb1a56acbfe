"""``manage.py pgqueue`` and ``manage.py pgqueue status``."""

from __future__ import annotations

import json

import pytest

from django_pgqueue import pause
from django_pgqueue.models import Worker
from django_pgqueue.monitoring.health import FIXES, MINOR
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory

from .test_subcommands import exit_code, run

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def test_a_new_installation(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code() == 1
    printed = capsys.readouterr()
    assert printed.err == "CommandError: 1 problem\n"
    assert printed.out.splitlines() == [
        "1 problem",
        "- no worker claims jobs",
        "  Start a worker: manage.py runqueueworker",
        "",
        "No queue has live jobs.",
        "",
        "Next:",
        "  manage.py pgqueue tasks   the tasks that can be enqueued",
        "  manage.py pgqueue top     watch the queue",
        "  manage.py pgqueue --help  all subcommands",
    ]


def test_what_waits_and_what_to_type_next() -> None:
    worker = WorkerFactory.create()
    JobFactory.create_batch(2, queue_name="mail")
    JobFactory.create(queue_name="reports", running=True, worker=worker.pk)
    JobStatFactory.create(queue_name="mail", done=240)
    lines = run().splitlines()
    assert lines[0].startswith("Healthy: 1 worker, ")
    head, mail, reports = (line.split() for line in lines[2:5])
    assert head == [
        "Queue", "Ready", "Scheduled", "Retrying", "Blocked", "Running", "Oldest", "Workers", "Rate",
    ]  # fmt: skip
    assert (mail[:6], mail[-1]) == (["mail", "2", "0", "0", "0", "0"], "jobs/s")
    assert (reports[:6], reports[-1]) == (["reports", "0", "0", "0", "0", "1"], "-")
    assert [line.split("  ")[1] for line in lines[7:]] == [
        "manage.py pgqueue jobs --status running", "manage.py pgqueue why ID", "manage.py pgqueue top",
        "manage.py pgqueue --help",
    ]  # fmt: skip


def test_a_problem_that_health_does_not_report_is_no_failure() -> None:
    WorkerFactory.create()
    JobFactory.create(queue_name="mail")
    JobStatFactory.create(failed=20)
    pause(queue="mail")
    printed = run("status")
    assert (
        "- mail: paused, and 1 job waits\n  To end the pause: manage.py pgqueue resume --queue mail"
        in printed
    )
    for command in ("failures --span 1h", "retry --status failed --since 1h --dry-run", "pauses"):
        assert f"  manage.py pgqueue {command}  " in printed
    found = json.loads(run("--json"))
    assert (found["healthy"], found["summary"], found["workers"]) == (True, "2 problems", 1)
    assert [(problem["kind"], problem["is_minor"], problem["fix"]) for problem in found["problems"]] == [
        ("failures", True, "To see them by their errors: manage.py pgqueue failures --span 1h"),
        ("paused", True, "To end the pause: manage.py pgqueue resume --queue mail"),
    ]
    assert [(queue["queue_name"], queue["ready"]) for queue in found["queues"]] == [("mail", 1)]
    assert {"command": "manage.py pgqueue pauses", "text": "who has paused what, and why"} in found["next"]


def test_the_commands_name_another_database() -> None:
    Worker.objects.using("other").bulk_create([WorkerFactory.build()])
    printed = run("--database", "other")
    assert "manage.py pgqueue top --database other" in printed


def test_each_problem_has_a_fix() -> None:
    assert {*MINOR} < {*FIXES}
