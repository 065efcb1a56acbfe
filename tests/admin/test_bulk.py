"""Actions on many jobs, which run in the background as a job of their own."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.test import Client
from django.utils import timezone

from django_pgqueue import cancel, enqueue, pause, resume, retry
from django_pgqueue.admin.bulk import actions, confirm, task as bulk
from django_pgqueue.jobs import chunks
from django_pgqueue.jobs.steps import MOST_STEPS
from django_pgqueue.models import Job, Worker
from django_pgqueue.models.changes import run_now_ids
from django_pgqueue.testing import AttemptResult, run_jobs
from tests.support.factories import JobFactory, WorkerFactory
from tests.support.jobs import sql

from .helpers import Page, ask, body, post, staff, statuses, url

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(chunks, "FIRST_SIZE", 2)


@pytest.fixture(autouse=True)
def worker() -> Worker:
    # However slow the machine is, this worker does not become silent.
    return WorkerFactory.create(heartbeat_at=timezone.now() + timedelta(hours=1))


def confirmed(client: Client, page: Page) -> Job:
    """Press the button, and return the job that runs the action."""
    client.cookies.pop("messages", None)
    response = client.post(page.address, page.fields)
    job = Job.objects.get(task_path=bulk.run.module_path)
    assert response.status_code == 302
    assert response["Location"] == url("change", job.pk)
    [message] = get_messages(response.wsgi_request)
    assert message.message.endswith("runs in the background. This page shows how far it is.")
    return job


def started(client: Client, action: str, *jobs: Job, **more: Any) -> Job:
    """Select the jobs for an action, press the button, and return the job that runs it."""
    return confirmed(client, ask(client, f"{action}_jobs", *jobs, **more))


def refused(job: Job) -> str:
    """Run the job, which is cancelled, and return why."""
    assert ran().outcome == "cancelled"
    job.refresh_from_db()
    return job.waiting_reason


def ran(*, raise_failures: bool = True) -> AttemptResult:
    """Run the job, and nothing else."""
    [one] = run_jobs(queues="default", limit=1, raise_failures=raise_failures)
    assert one.task_path == bulk.run.module_path, "it runs before all others"
    return one


def said() -> list[str]:
    return [entry.change_message for entry in LogEntry.objects.order_by("pk")]


def test_many_jobs_change_in_the_background(root: Client) -> None:
    failed = JobFactory.create_batch(5, failed=True)
    other = JobFactory.create(failed=True, queue_name="other")
    page = ask(root, "retry_jobs", failed[0], query="status=failed&queue=default", across=True)
    assert page.sentences == ["5 failed jobs would run again."]
    assert "This runs in the background" in page.content
    job = confirmed(root, page)
    assert statuses(*failed, other) == ["failed"] * 6, "nothing changes within the request"
    late = JobFactory.create(failed=True)
    assert f'data-pgqueue-key="{job.pk}"' in body(root, url("change", job.pk))
    live = body(root, url("progress"), keys=str(job.pk))
    assert "It has not started yet." in live
    assert f'data-pgqueue-key="{job.pk}"' in live
    assert ran().result == {"changed": 5, "of": 5, "words": "5 jobs run again."}
    assert "The job has ended." in body(root, url("progress"), keys=str(job.pk))
    assert statuses(*failed, other, late) == ["pending"] * 5 + ["failed"] * 2
    began = "Started in the background. Action: Retry. Filters: status=failed, queue=default."
    ended = "Ended. Action: Retry. 5 jobs run again."
    assert said() == [f"{began} Jobs that would change: 5.", ended]
    history = body(root, url("history", job.pk))
    assert all(text in history for text in (*said(), 'class="pgqueue-nav"'))
    steps = [step["name"] for step in Job.objects.get(pk=job.pk).steps or []]
    assert steps == ["chunk 1", "chunk 2", "chunk 3", "chunk 4", "ended"]


def test_who_may_not_view_results_is_told_what_came_of_it() -> None:
    client = staff("view_job", "cancel_job")
    job = started(client, "cancel", *JobFactory.create_batch(3, scheduled=True))
    ran()
    page = body(client, url("change", job.pk))
    assert "3 jobs were cancelled, or asked to stop if they were running." in page
    assert "&quot;changed&quot;" not in page


def test_selected_rows_and_new_values(root: Client) -> None:
    jobs, other = JobFactory.create_batch(3), JobFactory.create()
    page = ask(root, "edit_jobs", *jobs)
    when = timezone.now().replace(microsecond=0) + timedelta(days=1)
    values = {"priority": "7", "run_after": f"{when:%Y-%m-%dT%H:%M:%S}", "queue_name": ""}
    root.post(page.address, {**page.fields, **values})
    assert ran().result["words"] == "3 jobs were edited."
    changed = Job.objects.filter(pk__in=[job.pk for job in jobs])
    assert {(job.priority, job.run_after) for job in changed} == {(7, when)}
    assert Job.objects.get(pk=other.pk).priority == 0
    assert said()[0].startswith("Started in the background. Action: Edit (Priority: 7, Run after: ")


def test_the_job_counts_exactly_beyond_the_page(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "FIRST_COUNTED", (3,))
    jobs = JobFactory.create_batch(7, scheduled=True)
    page = ask(root, "cancel_jobs", jobs[0], query="status=pending", across=True)
    assert page.sentences == ["3+ waiting jobs would be cancelled."]
    confirmed(root, page)
    one = ran()
    assert (one.result["changed"], one.result["of"]) == (7, 7)
    assert one.progress is not None
    assert (one.progress.done, one.progress.total) == (7, 7)
    assert said()[0].endswith("Jobs that would change: 3+.")


def test_a_search_for_a_key_is_never_understood_as_text_later(root: Client) -> None:
    """The jobs with the key are gone when the job runs. Others have the term in their arguments."""
    blocked = {"status": "blocked", "wait_position": 5, "waiting_reason": "full"}
    keyed = JobFactory.create_batch(3, limit_key="acme", **blocked)
    others = JobFactory.create_batch(3, args=["key:acme", 1])
    page = ask(root, "cancel_jobs", keyed[0], query="q=key:acme", across=True)
    assert page.sentences == ["3 waiting jobs would be cancelled."]
    confirmed(root, page)
    cancel(Job.objects.filter(pk__in=[job.pk for job in keyed]))
    assert ran().result["words"] == "No job changed: all of them changed in the meantime."
    assert set(statuses(*others)) == {"pending"}


def test_a_filter_by_time_counts_back_from_the_confirmation(root: Client) -> None:
    now = timezone.now()
    failed = JobFactory.create_batch(3, failed=True, finished_at=now - timedelta(minutes=30))
    JobFactory.create_batch(2, failed=True, finished_at=now - timedelta(minutes=70))
    page = ask(root, "retry_jobs", failed[0], query="finished=hour&status=failed", across=True)
    job = confirmed(root, page)
    sealed, seal = Job.objects.get(pk=job.pk).args
    order = bulk.Order.opened(sealed, seal, "default")
    for ago, found in ((timedelta(0), 3), (timedelta(minutes=20), 5)):
        earlier = replace(order, as_of=(datetime.fromisoformat(order.as_of) - ago).isoformat())
        admin, request, _acting = earlier.access()
        assert admin.get_changelist_instance(request).get_queryset(request).count() == found


def test_its_page_is_titled_by_what_it_does_and_hides_the_signature(root: Client) -> None:
    jobs = JobFactory.create_batch(3, queue_name="tenants")
    job = confirmed(root, ask(root, "cancel_jobs", jobs[0], query="queue=tenants", across=True))
    page = body(root, url("change", job.pk))
    assert "<h2>Cancel 3 jobs of tenants</h2>" in page
    _order, seal = Job.objects.get(pk=job.pk).args
    assert seal not in page
    strange_ones: list[Any] = [{}, {"action": "none"}, {"action": "cancel", "counted": "x"}, [], 7]
    for strange in strange_ones:
        assert bulk.title(strange) == ""


def test_a_cancel_stops_it_and_a_retry_goes_on_with_it(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = JobFactory.create_batch(6, scheduled=True)
    job = started(root, "cancel", jobs[0], across=True)
    take = chunks.take

    def cancel_after_the_first(*args: Any) -> Any:
        taken = take(*args)
        if taken is not None and taken.cursor.after == jobs[1].pk:
            post(root, url("cancel", job.pk))
        return taken

    monkeypatch.setattr(chunks, "take", cancel_after_the_first)
    words = "2 jobs were cancelled, or asked to stop if they were running."
    assert refused(job) == f"Cancelled. {words}"
    assert statuses(*jobs) == ["cancelled"] * 2 + ["pending"] * 4
    assert said()[-1] == f"Cancelled. Action: Cancel. {words}"
    retry(jobs[0].pk)
    retry(job.pk)
    assert ran().result["changed"] == 6
    assert statuses(*jobs) == ["pending", *["cancelled"] * 5], "the first chunk is not done again"


def test_only_an_interrupted_chunk_is_done_again(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = JobFactory.create_batch(6, scheduled=True)
    started(root, "run_now", jobs[0], across=True)
    seen: list[list[int]] = []

    def die_in_the_second(found: Any) -> list[int]:
        pks = sorted(found.values_list("pk", flat=True))
        seen.append(pks)
        changed = run_now_ids(found)
        if len(seen) == 2:
            raise SystemExit("the worker dies after its jobs changed, before it is recorded")
        return changed

    deadly = replace(actions.ACTIONS["run_now"], run=die_in_the_second)
    monkeypatch.setitem(actions.ACTIONS, "run_now", deadly)
    assert ran(raise_failures=False).outcome == "retry"
    due = [job.pk for job in Job.objects.filter(run_after__lte=timezone.now(), task_path=jobs[0].task_path)]
    assert sorted(due) == [job.pk for job in jobs[:2]], "the second chunk was rolled back"
    Job.objects.filter(pk=jobs[0].pk).update(run_after=timezone.now() + timedelta(days=1))
    Job.objects.filter(task_path=bulk.run.module_path).update(run_after=timezone.now())
    assert ran().result == {"changed": 6, "of": 6, "words": "6 jobs are due now."}
    pks = [job.pk for job in jobs]
    assert seen == [pks[:2], pks[2:4], pks[2:4], pks[4:]]
    assert Job.objects.get(pk=jobs[0].pk).run_after > timezone.now()


def test_who_may_no_longer_do_it_is_refused() -> None:
    client = staff("view_job", "retry_job", "rerun_done_job")
    done = JobFactory.create_batch(3, done=True)
    user = User.objects.get()
    job = started(client, "retry", *done)
    sealed, seal = Job.objects.get(pk=job.pk).args
    order = bulk.Order.opened(sealed, seal, "default")
    for permission in user.user_permissions.all():
        user.user_permissions.remove(permission)
        with pytest.raises(bulk.Refused, match="may no longer do this"):
            order.access()
        user.user_permissions.add(permission)
    for lost in ("is_active", "is_staff"):
        User.objects.update(**{lost: False})
        with pytest.raises(bulk.Refused, match="may no longer do this"):
            order.access()
        User.objects.update(**{lost: True})
    order.access()
    User.objects.update(is_active=False)
    assert refused(job) == f"The user {user} may no longer do this. No job changed."
    assert said()[-1].startswith(f"The user {user} may no longer do this.")
    assert statuses(*done) == ["done"] * 3
    LogEntry.objects.all().delete()
    user.delete()
    with pytest.raises(bulk.Refused, match="The user who has confirmed this no longer exists"):
        order.access()


@pytest.mark.promise("many-checked-again")
def test_who_loses_the_permission_meanwhile_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    client = staff("view_job", "cancel_job")
    jobs = JobFactory.create_batch(5, scheduled=True)
    job = started(client, "cancel", *jobs)
    take = chunks.take

    def fire(*args: Any) -> Any:
        User.objects.update(is_active=False)
        return take(*args)

    monkeypatch.setattr(chunks, "take", fire)
    assert "may no longer do this. 2 jobs were cancelled" in refused(job)
    assert statuses(*jobs) == ["cancelled"] * 2 + ["pending"] * 3


def test_no_changed_or_old_order_runs(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = JobFactory.create_batch(3, scheduled=True)
    job = started(root, "run_now", *jobs)
    order, seal = Job.objects.get(pk=job.pk).args
    other = seal[:-1] + ("A" if seal[-1] != "A" else "B")
    for changed, by in (
        (order, other),
        ({**order, "user": "99"}, seal),
        ({**order, "action": "cancel"}, seal),
    ):
        with pytest.raises(bulk.Refused, match="The signature of this action"):
            bulk.Order.opened(changed, by, "default")
    Job.objects.filter(pk=job.pk).update(args=[order, other])
    assert refused(job).startswith("The signature of this action")
    assert statuses(*jobs) == ["pending"] * 3
    monkeypatch.setattr(bulk, "LONGEST", timedelta(0))
    with pytest.raises(bulk.Refused, match="This action is more than"):
        bulk.Order.opened(order, seal, "default")


def test_a_copy_of_the_job_is_refused(root: Client) -> None:
    jobs = JobFactory.create_batch(3, scheduled=True)
    job = started(root, "cancel", *jobs)
    assert ran().outcome == "done"
    retry(jobs[0].pk)
    copy = enqueue(bulk.run, *Job.objects.get(pk=job.pk).args)
    assert refused(Job.objects.get(pk=copy.pk)).startswith("This user has not started this job.")
    assert statuses(*jobs) == ["pending", "cancelled", "cancelled"]


def test_without_a_worker_to_start_it_the_request_does_it(root: Client, worker: Worker) -> None:
    jobs = JobFactory.create_batch(5, scheduled=True)

    def asked() -> Page:
        page = ask(root, "cancel_jobs", jobs[0], query="queue=default", across=True)
        assert "No worker can run this in the background now. It runs in this request" in page.content
        return page

    targets: list[dict[str, Any]] = [{"everything": True}, {"queue": "default"}, {"task": bulk.run}]
    for target in targets:
        pause(**target)
        asked()
        resume(**target)
    Worker.objects.update(queues=["mail"])
    asked()
    worker.delete()
    words = "5 jobs were cancelled, or asked to stop if they were running."
    assert asked().confirm(root) == (words, "success")
    assert statuses(*jobs) == ["cancelled"] * 5
    [entry] = LogEntry.objects.all()
    assert entry.change_message == f"Action: Cancel. Filters: queue=default. {words}"
    assert (entry.object_id, entry.object_repr) == (None, "jobs with queue=default")
    assert "jobs with queue=default" in body(root, "/admin/")


@pytest.mark.parametrize("slow", [False, True])
def test_a_request_ends_in_time(root: Client, monkeypatch: pytest.MonkeyPatch, slow: bool) -> None:
    """Between two statements or in one: a search for text may read for minutes before it finds a job."""
    Worker.objects.all().delete()
    monkeypatch.setattr(confirm, "SECONDS", 0.7 if slow else -1.0)
    real = iter([chunks.take])

    def slow_take(*args: Any) -> Any:
        if (take := next(real, None)) is not None:
            return take(*args)
        return sql("SELECT pg_sleep(20)")

    if slow:
        monkeypatch.setattr(chunks, "take", slow_take)
        monkeypatch.setattr(confirm, "_LEAST", 0.2)
    jobs = JobFactory.create_batch(5, scheduled=True)
    told = "2 jobs were cancelled, or asked to stop if they were running."
    told += " The time for one request has passed. Repeat the action for the rest."
    assert ask(root, "cancel_jobs", *jobs).confirm(root) == (told, "warning")
    assert statuses(*jobs) == ["cancelled"] * 2 + ["pending"] * 3
    assert sql("SHOW statement_timeout") == "0", "the limit ends with the chunk"


def test_the_queue_is_a_setting_or_one_that_is_permitted(root: Client, settings: Any) -> None:
    WorkerFactory.create(queues=["ops"])
    jobs = JobFactory.create_batch(9, scheduled=True)
    backend = {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}
    queues = []
    choices: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
        ({"default": {**backend, "QUEUES": ["web", "ops"]}}, {}),
        ({"default": backend}, {"BULK_QUEUE": "special"}),
        ({"default": backend}, {}),
    )
    for tasks, given in choices:
        settings.TASKS, settings.PGQUEUE = tasks, given
        root.post((page := ask(root, "run_now_jobs", *jobs[:3])).address, page.fields)
        queues.append(Job.objects.latest("pk").queue_name)
        jobs = jobs[3:]
    assert queues == ["ops", "special", "default"]


def test_the_steps_of_a_job_are_enough_for_ten_million_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    sizes = [chunks.size_of(number) for number in range(MOST_STEPS - 2)]
    assert sizes[0] == 500
    assert sum(sizes) > 10_000_000


def test_the_job_is_never_among_its_own(root: Client) -> None:
    jobs = JobFactory.create_batch(3)
    job = started(root, "cancel", jobs[0], across=True)
    sealed, seal = Job.objects.get(pk=job.pk).args
    order = bulk.Order.opened(sealed, seal, "default")
    wider = replace(order, effects=["not started", "not asked"], newest=job.pk)
    Job.objects.filter(pk=job.pk).update(args=list(wider.sealed()))
    assert ran().result["changed"] == 3
