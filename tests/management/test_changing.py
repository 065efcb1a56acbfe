"""``manage.py pgqueue``: what changes jobs, pauses, workers and schedules."""

from __future__ import annotations

import getpass
import json
import re
import shlex
import signal
import sys
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.management import CommandError
from django.test import override_settings
from django.utils import timezone

from django_pgqueue.jobs import chunks
from django_pgqueue.management import _parser
from django_pgqueue.management.subcommands import changing, jobs as jobs_module
from django_pgqueue.models import Job, Pause, Schedule, ScheduleRun, Worker
from django_pgqueue.models.changes import retry
from tests.app import unique_tasks
from tests.support import schedules
from tests.support.factories import BatchFactory, JobFactory, WorkerFactory

from .test_subcommands import run

DECLARED = unique_tasks  # imported, so that its tasks are known

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def statuses() -> dict[int, str]:
    return dict(Job.objects.order_by("pk").values_list("pk", "status"))


def refusal(*arguments: str) -> tuple[str, int]:
    with pytest.raises(CommandError) as refused:
        run(*arguments)
    return str(refused.value), refused.value.returncode


def retrying(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Let ``pgqueue retry`` change jobs in this way."""
    run = partial(changing.run, replace(changing.CHANGES[0], run=change))
    retry = replace(_parser.found()["retry"], run=run)
    monkeypatch.setitem(_parser._SUBCOMMANDS, "retry", retry)


@pytest.mark.parametrize(
    ("name", "start", "words", "end"),
    [
        *(("retry", {state: True}, "1 job runs again.", "pending") for state in ("failed", "cancelled")),
        ("cancel", {}, "1 job was cancelled, or asked to stop.", "cancelled"),
        ("cancel", {"running": True}, "1 job was cancelled, or asked to stop.", "running"),
        ("run-now", {"scheduled": True}, "1 job is due now.", "pending"),
    ],
)
def test_a_job_by_its_id(name: str, start: dict[str, Any], words: str, end: str) -> None:
    job = JobFactory.create(**start)
    assert run(name, str(job.pk), "--dry-run").endswith("Nothing has changed.")
    assert statuses() == {job.pk: job.status}
    assert run(name, str(job.pk)) == words
    job = Job.objects.get(pk=job.pk)
    assert job.status == end
    assert job.cancel_requested or name != "cancel"
    assert job.is_finished or job.run_after <= timezone.now()


def test_the_others_change_although_some_cannot() -> None:
    done, running, failed = (JobFactory.create(**{name: True}) for name in ("done", "running", "failed"))
    message, code = refusal("retry", *(str(job.pk) for job in (running, failed)), "--json")
    assert (message.split(".")[0], code) == (f"Not changed: {running.pk} (running)", 1)
    assert statuses()[failed.pk] == "pending"
    assert refusal("cancel", str(failed.pk), "404")[0].startswith("No job in the database 'default' has the")
    assert statuses()[failed.pk] == "pending"
    assert run("retry", str(done.pk), "--yes") == "1 job runs again."


def test_chosen_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "FIRST_SIZE", 2)
    meant = [JobFactory.create(failed=True, queue_name="mail").pk for _ in range(5)]
    other = JobFactory.create(failed=True)
    chosen = ("retry", "--queue", "mail")
    question = "5 failed jobs would run again."
    assert run(*chosen, "--dry-run") == f"{question} Nothing has changed."
    assert refusal(*chosen) == (f"{question} No user can be asked here: add --yes to do it.", 2)
    assert set(statuses().values()) == {"failed"}
    assert json.loads(run(*chosen, "--yes", "--json")) == {
        "database": "default", "action": "retry", "dry_run": False, "matched": 5, "changed": 5,
        "left_alone": 0, "unchanged": [], "stopped": False,
    }  # fmt: skip
    assert {pk for pk, status in statuses().items() if status == "pending"} == set(meant)
    assert run(*chosen, "--yes") == "No job matches. Nothing has changed."
    assert run("cancel", "--queue", "mail", "--yes", "--quiet") == ""
    assert statuses() == {**dict.fromkeys(meant, "cancelled"), other.pk: "failed"}


LIVE = "1 blocked, 1 pending, 1 retry, 1 running"


def test_what_each_of_them_chooses_by_itself() -> None:
    worker, batch = WorkerFactory.create(host="app-1", pid=7), BatchFactory.create()
    for trait in ("failed", "cancelled", "done", "retrying", "scheduled", "blocked"):
        JobFactory.create(batch=batch, **{trait: True})
    JobFactory.create(batch=batch, running=True, worker=worker.pk, limit_key="sku")
    for options, counted in {
        ("retry",): "1 failed job would",
        ("retry", "--status", "retry,cancelled"): "2 jobs (1 cancelled, 1 retry) would run again.",
        ("cancel",): f"4 jobs ({LIVE}) would be cancelled, or asked to stop.",
        ("cancel", "--worker", "app-1:7"): "1 running job",
        ("cancel", "--key", "sku"): "1 running job",
        ("run-now",): "2 jobs (1 pending, 1 retry) would be due now.",
    }.items():
        assert run(*options, "--batch", str(batch.pk), "--dry-run").startswith(counted)


@pytest.mark.parametrize(("answer", "status"), [("y\n", "pending"), ("no\n", "failed"), ("", "failed")])
def test_the_question(
    answer: str, status: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = JobFactory.create(failed=True)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: answer))
    question = "1 failed job would run again. Continue? [y/N] "
    if status == "pending":
        assert json.loads(run("retry", "--status", "failed", "--json"))["changed"] == 1
    else:
        assert refusal("retry", "--status", "failed") == ("Nothing has changed.", 1)
        question += "Nothing has changed.\n"
    assert capsys.readouterr().err == question
    assert statuses() == {job.pk: status}


def test_jobs_that_change_after_the_count_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a job that fails again at once would be retried again and again."""
    monkeypatch.setattr(chunks, "FIRST_SIZE", 1)
    late = timezone.now() + timedelta(hours=1)
    jobs = [JobFactory.create(failed=True, finished_at=end) for end in (timezone.now(), timezone.now(), late)]

    def beside(rows: Any) -> int:
        """Between two chunks, another job is retried, and a new one fails."""
        changed = retry(rows)
        retry(jobs[1].pk)
        JobFactory.create(failed=True)
        return changed

    retrying(monkeypatch, beside)
    assert run("retry", "--status", "failed", "--yes") == (
        "1 job runs again. 1 job was left alone: it was in another state by then, or another job has the "
        "same unique key."
    )
    assert list(statuses().values()) == ["pending", "pending", "failed", "failed"]


def test_ctrl_c_ends_it_between_two_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "FIRST_SIZE", 2)
    for _ in range(5):
        JobFactory.create(failed=True)
    before = signal.getsignal(signal.SIGINT)

    def pressed(rows: Any) -> int:
        signal.raise_signal(signal.SIGINT)
        return retry(rows)

    retrying(monkeypatch, pressed)
    assert refusal("retry", "--status", "failed", "--yes") == (
        "Stopped. 2 jobs of 5 changed; the others did not.", 130,
    )  # fmt: skip
    assert list(statuses().values()).count("pending") == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_ctrl_c_interrupts(request: pytest.FixtureRequest) -> None:
    # A shell lets the programs that it starts in the background ignore the signal.
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with changing.interruptible() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_who_waits_sees_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(chunks, "FIRST_SIZE", 1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    JobFactory.create_batch(2, failed=True)
    assert run("retry", "--status", "failed", "--yes") == "2 jobs run again."
    assert capsys.readouterr().err == "\r1 of 2 jobs \r2 of 2 jobs \r\033[K"


# --- Pauses, workers and schedules


def test_pauses(wording: Any) -> None:
    said = {}
    for target, *more in (("--queue mail",), ("--task shop.tasks.sync", "--author ''"), ("--everything",)):
        for line in (f"pause {' '.join([target, *more])}", f"resume {target}"):
            said[line] = run(*shlex.split(line))
            if line.startswith("pause"):
                assert Pause.objects.get().author == ("" if more else getpass.getuser())
    assert not Pause.objects.exists()
    for line in (
        "pause --queue mail --for 90m --json --author ann", "resume --queue mail --json",
        "pause --everything --quiet --until 2080-01-01T12:00Z", "resume --everything --json",
    ):  # fmt: skip
        said[line] = run(*line.split())
        if "--until" in line:
            assert str(Pause.objects.get().until) == "2080-01-01 12:00:00+00:00"
        elif "--for" in line:
            found = Pause.objects.get()
            assert found.until == found.paused_at + timedelta(minutes=90)
    assert said == wording


def test_the_end_of_a_pause_is_in_the_time_zone_of_the_project(settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Tokyo"
    assert "until 2080-01-01 12:00" in run("pause", "--queue", "mail", "--until", "2080-01-01T12:00")
    assert str(Pause.objects.get().until) == "2080-01-01 03:00:00+00:00"
    settings.USE_TZ = False
    assert "until 2080-01-01 12:00" in run("pause", "--queue", "mail", "--until", "2080-01-01T12:00")


def test_a_queue_that_nobody_knows_is_paused_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    JobFactory.create(queue_name="mail")
    assert run("pause", "--queue", "mial") == "Paused the queue mial."
    assert "Did you mean 'mail'?" in caplog.text


def test_a_worker_is_asked_by_its_name_or_its_id_to_end(wording: Any) -> None:
    worker = WorkerFactory.create(pk=81, host="app-1", pid=4711)
    WorkerFactory.create(pk=82, host="app-1", pid=4712)
    WorkerFactory.create(pk=83, host="media", pid=0, supervisor=None)
    said = {}
    ways = {"": "replace", " --stop": "stop", " --json": "replace", " --stop --quiet": "stop"}
    for options, how in ways.items():
        for name in ("app-1:4711", "81"):
            Worker.objects.update(drain="")
            said[name + options] = run("drain-worker", name, *options.split())
            assert list(Worker.objects.exclude(drain="").values_list("pk", "drain")) == [(worker.pk, how)]
    assert {**said, "media": run("drain-worker", "media")} == wording


def test_a_schedule_is_paused_resumed_and_enqueued(wording: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    schedules.create("nightly")
    said = {"pause": run("schedules", "pause", "nightly", "--reason", "inventory", "--author", "anna")}
    row = Schedule.objects.get()
    assert (row.pause_author, row.pause_reason) == ("anna", "inventory")
    said["resume"] = re.sub(r"in \d.*", "in <while>", run("schedules", "resume", "nightly"))
    assert Schedule.objects.get().is_active
    said["enqueue"] = run("schedules", "enqueue", "nightly")
    assert ScheduleRun.objects.get().outcome == "manual"
    shown = re.sub(r"in \d.*", "in <while>", run("schedules", "show", "nightly"))
    said["show"] = shown.partition("Next runs")[0]
    job = rf"(?<=ob ){Job.objects.get().pk}\b"
    assert {name: re.sub(job, "<id>", text) for name, text in said.items()} == wording
    for user, author in (("anna", "anna"), (KeyError("uid not found"), "")):
        monkeypatch.setattr("getpass.getuser", Mock(side_effect=[user]))
        run("schedules", "pause", "nightly")
        assert Schedule.objects.get().pause_author == author
        run("schedules", "resume", "nightly")


def test_another_job_has_the_unique_key_of_the_schedule() -> None:
    schedules.create("nightly", task_path="tests.app.unique_tasks.index")
    run("schedules", "enqueue", "nightly")
    printed = run("schedules", "enqueue", "nightly")
    job = Job.objects.get()
    assert printed == f"No job is enqueued: job {job.pk} has the unique key of the schedule."
    Schedule.objects.update(task_path="tests.app.unique_tasks.once", args=["a"])
    run("schedules", "enqueue", "nightly")
    with pytest.raises(CommandError, match="has the unique key of the schedule 'nightly'"):
        run("schedules", "enqueue", "nightly")


def test_a_job_by_hand_has_the_language_of_the_project(settings: Any) -> None:
    """The command runs in English, and the language travels with a job if CONTEXT says so."""
    settings.LANGUAGE_CODE, settings.PGQUEUE = "de", {"CONTEXT": ["language"]}
    schedules.create("nightly")
    run("schedules", "enqueue", "nightly")
    assert not (Job.objects.get().metadata or {}).get("context")


# --- pgqueue run-here, as far as it does not need a worker


@override_settings(PGQUEUE={"REDACT": [r"re:\d{4}(-\d{4}){3}"]})
def test_what_must_not_be_shown_of_the_end_of_a_job_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    card = "4111-1111-1111-1111"
    result = SimpleNamespace(
        row=SimpleNamespace(id=5, task_path="tests.app.tasks.noop", attempts=1),
        outcome=SimpleNamespace(kind="failed", reason=f"card {card} is refused", result=None),
        error=ValueError(f"card {card} of ann"),
        ran=0.1,
    )
    monkeypatch.setattr(jobs_module, "run_job", lambda pk, alias: result)
    answer = jobs_module.run_here({"job": (None, 5), "database": "default", "pdb": False})
    printed = "\n".join(map(str, answer.text))
    assert "ValueError: card [redacted] of ann" in printed
    assert answer.error.endswith("failed (card [redacted] is refused).")
    assert card not in printed + answer.error
