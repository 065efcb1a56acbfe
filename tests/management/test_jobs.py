"""``manage.py pgqueue jobs``."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import override_settings
from django.utils import timezone

from django_pgqueue.jobs.steps import HAS_STEPS
from django_pgqueue.management._job_filters import statuses
from django_pgqueue.management.subcommands import jobs as subcommand
from django_pgqueue.models import FailureGroup, Job, JobProgress, Step
from django_pgqueue.postgres.timeout import TimeLimitReached
from django_pgqueue.tasks.progress import HAS_PROGRESS
from tests.support.factories import ERROR, BatchFactory, JobFactory, WorkerFactory

from .test_subcommands import run

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def listed(*options: str) -> list[int]:
    """The ids in the JSON of the list."""
    return [row["id"] for row in json.loads(run("jobs", *options, "--json"))["jobs"]]


def refusal(*arguments: str) -> tuple[str, int]:
    with pytest.raises(CommandError) as refused:
        run("jobs", *arguments)
    return str(refused.value), refused.value.returncode


def test_the_list() -> None:
    assert run("jobs") == "There is no job."
    worker = WorkerFactory.create(host="app-1", pid=7)
    running = JobFactory.create(running=True, worker=worker.pk, current_step="load", marks=HAS_PROGRESS)
    JobProgress.objects.create(job_id=running.pk, done=1200, total=5000, note="rows")
    failed = JobFactory.create(failed=True, queue_name="mail")
    JobFactory.create(scheduled=True)
    head, later, dead, busy = run("jobs").splitlines()
    assert head.split() == ["ID", "Status", "Queue", "Task", "Attempts", "When", "Worker", "About"]
    assert "pending" in later
    assert "in 59 min" in later
    assert dead.split()[:5] == [str(failed.pk), "failed", "mail", "tests.app.tasks.add", "1/5"]
    assert dead.endswith("GatewayDown: no answer from the gateway")
    assert "app-1:7  1,200 of 5,000 (24 %) rows, step load" in busy


def test_the_list_as_json_is_read_page_by_page() -> None:
    ids = [JobFactory.create().pk for _ in range(5)]
    first = json.loads(run("jobs", "--limit", "3", "--json"))
    assert ([row["id"] for row in first["jobs"]], first["next"]) == (ids[:1:-1], ids[2])
    rest = json.loads(run("jobs", "--limit", "3", "--after", str(first["next"]), "--json"))
    assert ([row["id"] for row in rest["jobs"]], rest["next"]) == (ids[1::-1], None)
    row = first["jobs"][0]
    assert (row["status"], row["queue_name"], row["task"], row["error"]) == (
        "pending", "default", "tests.app.tasks.add", None,
    )  # fmt: skip
    assert datetime.fromisoformat(row["run_after"]).tzinfo is not None
    assert run("jobs", "--limit", "2").splitlines()[-1] == f"There are more: --after {ids[3]}"
    assert run("jobs", "--limit", "2", "--quiet").split() == [str(ids[4]), str(ids[3])]


def test_each_filter() -> None:
    worker = WorkerFactory.create(host="app-1", pid=7)
    batch = BatchFactory.create()
    long_ago = timezone.now() - timedelta(hours=3)
    made: dict[str, Any] = {
        "--status=failed": JobFactory.create(failed=True, finished_at=long_ago, enqueued_at=long_ago),
        "--status=blocked,running": JobFactory.create(running=True, worker=worker.pk),
        "--queue=mail": JobFactory.create(queue_name="mail", enqueued_at=long_ago),
        "--task=tests.app.tasks.noop": JobFactory.create(task_path="tests.app.tasks.noop"),
        "--batch=%d" % batch.pk: JobFactory.create(batch=batch, enqueued_at=long_ago),  # noqa: UP031
        "--key=sku-7": JobFactory.create(limit_key="sku-7", wait_position=1),
        "--fingerprint=abc": JobFactory.create(retrying=True, error_fingerprint="abc"),
        "--status=done": JobFactory.create(done=True),
    }
    for option, job in made.items():
        assert listed(option) == [job.pk], option
    running = made["--status=blocked,running"]
    assert listed("--worker", "app-1:7") == listed("--worker", str(worker.pk)) == [running.pk]
    recent = {job.pk for job in made.values() if job.enqueued_at > long_ago}
    assert set(listed("--since", "2h")) == recent
    assert set(listed("--since", long_ago.isoformat())) == {job.pk for job in made.values()}
    assert set(listed("--status=failed,done")) == {made["--status=failed"].pk, made["--status=done"].pk}


def test_everything_about_a_job() -> None:
    error = {**ERROR, "step": "charge", "attempt": 2, "class": "builtins.KeyError", "message": "'no\x1b[31m'"}
    job = JobFactory.create(
        failed=True, errors=[ERROR, error], attempts=2, limit_key="sku-7", args=["told-nobody"],
        steps=[{"name": "load", "kind": "step", "attempt": 1, "seconds": 0.25, "result": 5,
                "finished_at": "2026-11-21T00:00:00+00:00"}],
        logs=[{"attempt": 2, "lines": [{"at": "2026-11-21", "level": "INFO", "logger": "shop",
                                        "message": "one\ntwo"}], "left_out": 3}],
    )  # fmt: skip
    text = run("jobs", str(job.pk))
    assert text.startswith(f"Job {job.pk}: tests.app.tasks.add, failed\n  Why:          It failed at ")
    for line in (
        "  Attempts:     2 of 5",
        "  Limit key:    sku-7",
        '  Arguments:    ["told-nobody"]',
        "  load  step  1        250 ms  ",
        "  attempt 2, 2026-11-2",
        ", step charge: KeyError: 'no\\x1b[31m'",
        "    Traceback (most recent call last):",
        "    2026-11-21 INFO shop: one",
        "    two",
        "    (3 lines left out)",
    ):
        assert line in text
    [found] = json.loads(run("jobs", str(job.pk), "--json"))["jobs"]
    assert [step["name"] for step in found["steps"]] == ["load"]
    assert [each["attempt"] for each in found["errors"]] == [1, 2]
    assert found["error"]["class"] == "builtins.KeyError"
    assert found["why"]["code"] == "failed"


def test_a_live_job_has_its_steps_and_its_progress() -> None:
    job = JobFactory.create(running=True, marks=HAS_STEPS | HAS_PROGRESS)
    JobProgress.objects.create(job_id=job.pk, done=1, total=4)
    Step.objects.create(job_id=job.pk, name="nap", kind=Step.Kind.SLEEP, wake_at=timezone.now())
    text = run("jobs", str(job.pk))
    assert "█████░░░░░░░░░░░░░░░ 1 of 4 (25 %)" in text
    assert "nap   sleep" in text
    [found] = json.loads(run("jobs", str(job.pk), "--json"))["jobs"]
    assert found["progress"] == {"done": 1, "total": 4, "note": "", "fraction": 0.25}
    assert found["steps"][0]["wake_at"]


def test_jobs_of_another_database() -> None:
    Job.objects.using("other").bulk_create([JobFactory.build(pk=9, queue_name="there")])
    for options in (("other:9",), ("9", "--database", "other"), ("--database", "other")):
        found = json.loads(run("jobs", *options, "--json"))
        assert (found["database"], [row["queue_name"] for row in found["jobs"]]) == ("other", ["there"])


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["5"], "No job in the database 'default' has the id 5.", 1),
        (["5", "other:6"], "The ids name jobs in several databases (default, other).", 2),
        (["five"], "'five' is not the id of a job", 2),
        (["5", "--status", "failed"], "either ids or options", 2),
        (["--status", "faild"], "'faild' is not a status. Did you mean 'failed'?", 2),
        (["--since", "soon"], "'soon' is neither a duration such as 30m", 2),
        (["--worker", "app-9:1"], "No worker has the name or the id 'app-9:1'", 1),
        (["--key", "a", "--status", "done"], "--key finds jobs that are not finished.", 2),
        (["--json", "--quiet"], "--json and --quiet cannot be used together.", 2),
        (["--task", "visit"], "the task is not known. Did you mean 'tests.receipts.tasks.visit'?", 1),
        (["--queue", "a\0b"], "contains a NUL", 2),
        (["--limit", "0"], "0 is less than 1", 2),
    ],
)
def test_what_cannot_be_asked(arguments: list[str], words: str, code: int) -> None:
    message, returncode = refusal(*arguments)
    assert words in message
    assert returncode == code


def test_a_queue_that_nobody_knows() -> None:
    JobFactory.create(queue_name="mail")
    assert refusal("--queue", "mial") == (
        "There is no job of the queue 'mial', and the queue is not known. Did you mean 'mail'?", 1,
    )  # fmt: skip
    assert run("jobs", "--queue", "mail", "--status", "failed") == "There is no such job."


def test_a_list_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> Any:
        raise TimeLimitReached

    monkeypatch.setattr(subcommand, "time_limit", late)
    assert refusal()[0].startswith("The database did not answer within 5 s. Choose fewer jobs")


def test_statuses() -> None:
    assert statuses("failed, retry,failed") == ("failed", "retry")
    with pytest.raises(ArgumentTypeError, match="The statuses are pending, retry"):
        statuses("x")


def test_the_beginning_of_a_fingerprint_is_enough() -> None:
    job = JobFactory.create(failed=True, error_fingerprint="abc1")
    now = timezone.now()
    for fingerprint in ("abc1", "abd2"):
        FailureGroup.objects.create(fingerprint=fingerprint, sample_job=1, first_seen=now, last_seen=now)
    assert listed("--fingerprint", "abc") == listed("--fingerprint", "abc1") == [job.pk]
    assert refusal("--fingerprint", "ab") == ("Several fingerprints begin with 'ab': abc1, abd2, ...", 1)


@override_settings(PGQUEUE={"REDACT": ["password", "re:tok_[a-z]+"]})
def test_what_must_not_be_shown_is_redacted() -> None:
    job = JobFactory.create(
        failed=True, kwargs={"password": "open sesame"}, result={"password": "open sesame"},
        errors=[{**ERROR, "message": "tok_secret", "traceback": "Traceback: tok_secret"}],
        logs=[{"attempt": 1, "lines": [{"at": "", "level": "", "logger": "", "message": "tok_secret"}]}],
        steps=[{"name": "load", "result": {"password": "open sesame"}}], waiting_reason="tok_secret",
    )  # fmt: skip
    for options in ((), (str(job.pk),), ("--json",), (str(job.pk), "--json")):
        printed = run("jobs", *options)
        assert "open sesame" not in printed
        assert "tok_secret" not in printed
        assert "[redacted]" in printed


@override_settings(PGQUEUE={"REDACT": [r"re:\d{4}(-\d{4}){3}"]})
def test_a_pattern_sees_more_of_an_error_than_a_list_shows() -> None:
    begins = "x" * 290
    errors = [{**ERROR, "message": f"{begins} 4111-1111-1111-1111 was refused"}]
    job = JobFactory.create(failed=True, errors=errors)
    [row] = json.loads(run("jobs", "--json"))["jobs"]
    assert row["error"]["message"] == f"{begins} [redacted"
    assert "4111" not in run("jobs")
    [whole] = json.loads(run("jobs", str(job.pk), "--json"))["jobs"]
    assert whole["error"]["message"] == f"{begins} [redacted] was refused"
    job = JobFactory.create(failed=True, errors=[{**ERROR, "message": "x" * 5_000}])
    assert json.loads(run("jobs", "--json"))["jobs"][0]["error"]["message"] == ""
    assert json.loads(run("jobs", str(job.pk), "--json"))["jobs"][0]["error"]["message"] == "x" * 5_000


@override_settings(PGQUEUE={"REDACT": ["re:(?s)BEGIN KEY.*END KEY"]})
def test_a_pattern_may_be_about_several_lines_of_a_log() -> None:
    def line(message: str) -> dict[str, str]:
        return {"at": "", "level": "INFO", "logger": "shop", "message": message}

    logs = [
        {"attempt": 1, "lines": [line("one\ntwo"), line("three")]},
        {"attempt": 2, "lines": [line("it is BEGIN KEY"), line("zanzibar"), line("END KEY, thanks")]},
    ]
    job = JobFactory.create(failed=True, errors=[ERROR], logs=logs)
    text = run("jobs", str(job.pk))
    assert "zanzibar" not in text
    assert "INFO shop: it is [redacted], thanks" in text
    first, second = json.loads(run("jobs", str(job.pk), "--json"))["jobs"][0]["logs"]
    assert [each["message"] for each in first["lines"]] == ["one\ntwo", "three"]
    assert [each["message"] for each in second["lines"]] == ["it is [redacted], thanks", "", ""]
