"""``manage.py pgqueue retry``, ``cancel`` and ``run-now``."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone

from django_pgqueue.jobs import chunks
from django_pgqueue.management import _parser
from django_pgqueue.management.subcommands import changing
from django_pgqueue.models import Job
from django_pgqueue.models.changes import retry
from django_pgqueue.postgres.timeout import TimeLimitReached
from tests.support.factories import BatchFactory, JobFactory, WorkerFactory

from .test_subcommands import run

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
        ("retry", {"failed": True}, "1 job runs again.", "pending"),
        ("retry", {"cancelled": True}, "1 job runs again.", "pending"),
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


def test_ids_that_do_not_change() -> None:
    done, running, failed = (JobFactory.create(**{name: True}) for name in ("done", "running", "failed"))
    message, code = refusal("retry", *(str(job.pk) for job in (running, failed)), "--json")
    assert message.startswith(f"Not changed: {running.pk} (running). Running and blocked jobs cannot be ")
    assert code == 1
    assert statuses()[failed.pk] == "pending"
    message, code = refusal("cancel", str(done.pk))
    assert message.startswith(f"Not changed: {done.pk} (done). Finished jobs, and")
    assert refusal("cancel", str(failed.pk), "404")[0].startswith("No job in the database 'default' has the")
    assert statuses()[failed.pk] == "pending"


def test_a_done_job_runs_a_second_time_only_on_request() -> None:
    job = JobFactory.create(done=True)
    message, code = refusal("retry", str(job.pk))
    assert message.startswith(f"Job {job.pk} is done and would run a second time. Nobody can be asked here")
    assert code == 2
    assert run("retry", str(job.pk), "--yes") == "1 job runs again."


def test_chosen_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "FIRST_SIZE", 2)
    meant = [JobFactory.create(failed=True, queue_name="mail").pk for _ in range(5)]
    other = JobFactory.create(failed=True)
    chosen = ("retry", "--queue", "mail")
    question = "5 failed jobs would run again."
    assert run(*chosen, "--dry-run") == f"{question} Nothing has changed."
    assert refusal(*chosen) == (f"{question} Nobody can be asked here: add --yes to do it.", 2)
    assert set(statuses().values()) == {"failed"}
    assert json.loads(run(*chosen, "--yes", "--json")) == {
        "database": "default", "action": "retry", "dry_run": False, "matched": 5, "changed": 5,
        "left_alone": 0, "unchanged": [], "stopped": False,
    }  # fmt: skip
    assert {pk for pk, status in statuses().items() if status == "pending"} == set(meant)
    assert run(*chosen, "--yes") == "No job matches. Nothing has changed."
    assert run("cancel", "--queue", "mail", "--yes", "--quiet") == ""
    assert statuses() == {**dict.fromkeys(meant, "cancelled"), other.pk: "failed"}


def test_what_each_of_them_chooses_by_itself() -> None:
    worker, batch = WorkerFactory.create(host="app-1", pid=7), BatchFactory.create()
    traits = ("failed", "cancelled", "done", "retrying", "scheduled", "blocked")
    made = {name: JobFactory.create(batch=batch, **{name: True}) for name in traits}
    JobFactory.create(batch=batch, running=True, worker=worker.pk, limit_key="sku")
    for options, counted in {
        ("retry",): "1 failed job would",
        ("retry", "--status", "retry,cancelled"): "2 jobs (1 cancelled, 1 retry) would run again.",
        (
            "cancel",
        ): "4 jobs (1 blocked, 1 pending, 1 retry, 1 running) would be cancelled, or asked to stop.",
        ("cancel", "--worker", "app-1:7"): "1 running job",
        ("cancel", "--key", "sku"): "1 running job",
        ("run-now",): "2 jobs (1 pending, 1 retry) would be due now.",
    }.items():
        assert run(*options, "--batch", str(batch.pk), "--dry-run").startswith(counted)
    assert made["failed"].pk


class Terminal:
    """A person who answers."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.answer


@pytest.mark.parametrize(("answer", "status"), [("y\n", "pending"), ("no\n", "failed"), ("", "failed")])
def test_the_question(
    answer: str, status: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = JobFactory.create(failed=True)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    if status == "pending":
        assert json.loads(run("retry", "--status", "failed", "--json"))["changed"] == 1
    else:
        assert refusal("retry", "--status", "failed") == ("Nothing has changed.", 1)
    assert capsys.readouterr().err == "1 failed job would run again. Continue? [y/N] "
    assert statuses() == {job.pk: status}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cancel"], "Say which jobs: their ids, or options"),
        (["retry", "--status", "running"], "--status running: such jobs cannot change. Running and blocked"),
        (["cancel", "--status", "failed,pending"], "--status failed: such jobs cannot change."),
        (["retry", "--key", "sku"], "--key finds jobs that are not finished. Add --status retry."),
        (["retry", "5", "--queue", "mail"], "either ids or options"),
        (["retry", "--worker", "app-1:7"], "--worker chooses jobs that run now. Running and blocked"),
    ],
)
def test_what_cannot_be_asked(arguments: list[str], words: str) -> None:
    JobFactory.create(queue_name="mail")
    WorkerFactory.create(host="app-1", pid=7)
    message, code = refusal(*arguments)
    assert words in message
    assert code == 2


def test_a_name_that_nothing_has() -> None:
    JobFactory.create(queue_name="mail")
    message, code = refusal("run-now", "--queue", "mial", "--yes")
    assert "the queue is not known. Did you mean 'mail'?" in message
    assert code == 1


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


def test_a_count_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> Any:
        raise TimeLimitReached

    monkeypatch.setattr(changing, "time_limit", late)
    message, code = refusal("cancel", "--queue", "mail", "--yes")
    assert message.startswith("The jobs could not be counted within 30 s. Choose fewer")
    assert code == 1


def test_who_watches_sees_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chunks, "FIRST_SIZE", 1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    JobFactory.create_batch(2, failed=True)
    assert run("retry", "--status", "failed", "--yes") == "2 jobs run again."
    assert capsys.readouterr().err == "\r1 of 2 jobs \r2 of 2 jobs \r\033[K"
