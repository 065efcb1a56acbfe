"""The page that asks before an action changes several jobs. Only the jobs that it showed change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import pytest_django
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone, translation

from django_pgqueue import cancel
from django_pgqueue.admin.bulk import actions, selection
from django_pgqueue.models import Job, LiveJob
from tests.support.factories import JobFactory

from .helpers import STATES, act, ask, post, staff, url

pytestmark = pytest.mark.django_db


def statuses(*jobs: Job) -> list[str]:
    found = dict(Job.objects.values_list("pk", "status"))
    return [found[job.pk] for job in jobs]


def finish(job: Job, status: str = "done") -> None:
    """Change a running or failed job to this status, as if it had changed in the meantime."""
    Job.objects.filter(pk=job.pk)._raw_delete("default")
    JobFactory.create(id=job.pk, **{status: True})


def one_of_each() -> dict[str, Job]:
    return {name: JobFactory.create(**options) for name, options in STATES.items()}


def test_retry(root: Client) -> None:
    failed, running = JobFactory.create_batch(2, failed=True), JobFactory.create(running=True)
    page = ask(root, "retry_jobs", *failed, running)
    assert "3 jobs are selected. Nothing has changed yet." in page.html
    assert page.sentences == ["2 failed jobs would run again.", "1 running job does not change."]
    assert statuses(*failed, running) == ["failed", "failed", "running"]
    assert page.confirm(root) == ("2 jobs run again.", "success")
    assert set(LiveJob.objects.values_list("pk", "status")) == {  # type: ignore[attr-defined]
        (failed[0].pk, "pending"), (failed[1].pk, "pending"), (running.pk, "running"),
    }  # fmt: skip
    assert LogEntry.objects.count() == 2


def test_cancel(root: Client) -> None:
    pending, running, done = (
        JobFactory.create(),
        JobFactory.create(running=True),
        JobFactory.create(done=True),
    )
    page = ask(root, "cancel_jobs", pending, running, done)
    assert page.sentences == [
        "1 waiting job would be cancelled.",
        "1 running job would be asked to stop.",
        "1 finished job does not change.",
    ]
    assert page.confirm(root) == ("2 jobs were cancelled, or asked to stop if they were running.", "success")
    assert statuses(pending, running, done) == ["cancelled", "running", "done"]
    assert Job.objects.get(pk=running.pk).cancel_requested_at is not None
    assert "asked to stop" in root.get(url("changelist"), {"status": "running"}).content.decode()
    again = ask(root, "cancel_jobs", running, done)
    assert again.sentences == [
        "1 running job was already asked to stop.",
        "1 finished job does not change.",
    ]


def test_run_now(root: Client) -> None:
    later, now = JobFactory.create(scheduled=True), JobFactory.create()
    page = ask(root, "run_now_jobs", later, now)
    assert page.sentences == [
        "1 job that waits for a later time would be due now.",
        "1 waiting job is already due.",
    ]
    assert page.confirm(root) == ("1 job is due now.", "success")
    assert Job.objects.get(pk=later.pk).run_after <= timezone.now()


@pytest.mark.parametrize(
    ("action", "effect"),
    [
        ("retry_jobs", {"pending", "retry", "done", "failed", "cancelled"}),
        ("run_now_jobs", {"retry"}),
        ("cancel_jobs", {"pending", "retry", "running", "blocked"}),
    ],
)
def test_what_the_page_says_of_each_state_is_what_happens(
    root: Client, action: str, effect: set[str]
) -> None:
    for state, options in STATES.items():
        jobs = JobFactory.create_batch(2, **options)
        before = list(Job.objects.filter(pk__in=[job.pk for job in jobs]).order_by("pk").values())
        page = ask(root, action, *jobs)
        [sentence] = page.sentences
        assert sentence.startswith("2 ")
        assert (" would " in sentence) is (state in effect)
        if state in effect:
            assert page.confirm(root)[0].startswith("2 jobs ")
        else:
            assert "Nothing would change." in page.html
            assert post(root, page.address, **page.fields)[0].startswith("No job changed: ")
        after = list(Job.objects.filter(pk__in=[job.pk for job in jobs]).order_by("pk").values())
        assert (before != after) is (state in effect)


@pytest.mark.usefixtures("small_pages")
def test_all_that_match(
    root: Client, django_assert_max_num_queries: pytest_django.DjangoAssertNumQueries
) -> None:
    failed = JobFactory.create_batch(7, failed=True)
    other = JobFactory.create(failed=True, queue_name="other")
    query = "status=failed&queue=default"
    page = root.get(f"{url('changelist')}?{query}").content.decode()
    assert "Select all that match, on every page" in page
    with django_assert_max_num_queries(20):
        asked = ask(root, "retry_jobs", *failed[:3], query=query, across=True)
    assert asked.sentences == ["7 failed jobs would run again."]
    assert len(asked.fields["_selected_action"]) == 1, "not one field for each of a million"
    with django_assert_max_num_queries(25):
        assert asked.confirm(root) == ("7 jobs run again.", "success")
    assert statuses(other, *failed) == ["failed", *["pending"] * 7]


def test_one_job_changes_at_once_also_if_all_that_match_are_selected(root: Client) -> None:
    job, other = JobFactory.create(failed=True), JobFactory.create()
    address = f"{url('changelist')}?status=failed"
    data = {"action": "retry_jobs", "_selected_action": [job.pk], "index": 0, "select_across": 1}
    assert post(root, address, **data) == ("1 job runs again.", "success")
    assert statuses(job, other) == ["pending", "pending"]
    assert post(root, address, **data)[0].startswith("No job changed: ")


def test_jobs_that_came_in_the_meantime_are_left_alone(root: Client) -> None:
    waiting = JobFactory.create_batch(2)
    page = ask(root, "cancel_jobs", waiting[0], across=True)
    late = JobFactory.create()
    assert "enqueued from now on" in page.html
    assert page.confirm(root)[0].startswith("2 jobs were cancelled")
    assert statuses(*waiting, late) == ["cancelled", "cancelled", "pending"]


@pytest.mark.parametrize("across", [False, True])
def test_a_job_that_has_become_done_in_the_meantime_does_not_run_again(root: Client, across: bool) -> None:
    failed, running = JobFactory.create_batch(3, failed=True), JobFactory.create(running=True)
    done = JobFactory.create(done=True)
    page = ask(root, "retry_jobs", *failed, running, done, across=across)
    assert page.sentences == [
        "1 done job would run a second time.",
        "3 failed jobs would run again.",
        "1 running job does not change.",
    ]
    for job in (failed[1], running):
        finish(job)
    told, kind = page.confirm(root)
    assert told == (
        "3 jobs run again. "
        "1 other was left alone: it changed in the meantime, or another job has its unique key."
    )
    assert kind == "success"
    assert statuses(*failed, running, done) == ["pending", "done", "pending", "done", "pending"]


def test_a_state_that_was_not_shown_is_left_out(root: Client) -> None:
    pending = JobFactory.create_batch(3)
    page = ask(root, "cancel_jobs", *pending)
    Job.objects.filter(pk=pending[0].pk).update(status="running", worker=7, lease=1)
    told, _kind = page.confirm(root)
    assert told.endswith("1 other changed in the meantime and was left alone.")
    assert Job.objects.get(pk=pending[0].pk).cancel_requested_at is None
    again = ask(root, "retry_jobs", *pending[1:])
    for job in pending[1:]:
        finish(job)
    told, kind = again.confirm(root)
    assert told.startswith("No job changed: all of them changed in the meantime")
    assert kind == "warning"


def test_a_search_for_a_key_that_is_gone_is_not_a_search_for_text(root: Client) -> None:
    keyed = JobFactory.create_batch(
        2, limit_key="acme", status="blocked", wait_position=5, waiting_reason="full"
    )
    other = JobFactory.create(args=["key:acme", 1])
    page = ask(root, "cancel_jobs", keyed[0], query="q=key:acme", across=True)
    for job in keyed:
        cancel(job.pk)
    assert page.confirm(root)[0] == "No job changed: all of them changed in the meantime."
    assert statuses(other) == ["pending"]


def test_of_many_jobs_some_are_counted_and_all_of_them_change(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "MOST_COUNTED", 3)
    blocked = JobFactory.create_batch(2, status="blocked", waiting_reason="paused")
    waiting, running = JobFactory.create_batch(4), JobFactory.create(running=True)
    page = ask(root, "retry_jobs", waiting[0], across=True)
    assert page.sentences == [
        "3 or more waiting jobs would be due now, with all their attempts again.",
        "2 jobs whose task is paused would have all their attempts again when the pause ends.",
        "1 running job does not change.",
    ]
    assert "6 or more jobs are selected." in page.html
    assert page.confirm(root) == ("6 jobs run again.", "success")
    assert statuses(*blocked, running) == ["blocked", "blocked", "running"]


def test_what_takes_too_long_to_count_is_not_taken_for_nothing(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "within", lambda *_: None)
    jobs = JobFactory.create_batch(5)
    page = ask(root, "cancel_jobs", jobs[0], query="status=pending", across=True)
    assert page.sentences == ["0 or more waiting jobs would be cancelled."]
    assert page.confirm(root)[0] == "5 jobs were cancelled, or asked to stop if they were running."


def test_of_a_long_history_the_last_jobs_are_looked_at(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_FINISHED", 3)
    waiting = JobFactory.create_batch(6)
    failed = JobFactory.create_batch(6, failed=True)
    page = ask(root, "retry_jobs", failed[0], query="queue=default", across=True)
    assert page.sentences[0] == "3 failed jobs would run again."
    assert page.sentences[1].startswith("6 waiting jobs "), "those that are not over are looked at all"
    assert f"Those with an id below {failed[3].pk} do not change." in page.html
    assert page.confirm(root)[0] == "9 jobs run again."
    assert statuses(*failed) == ["failed"] * 3 + ["pending"] * 3
    assert set(statuses(*waiting)) == {"pending"}
    odd = JobFactory.create(failed=True, queue_name="odd")
    asked = ask(root, "retry_jobs", odd, query="queue=odd", across=True)
    assert asked.sentences == ["1 failed job would run again."], "it may be one of many"


def test_done_jobs_run_again_with_a_permission_of_its_own() -> None:
    done, failed = JobFactory.create_batch(2, done=True), JobFactory.create(failed=True)
    client = staff("view_job", "retry_job")
    page = ask(client, "retry_jobs", *done, failed)
    assert page.sentences == [
        "2 done jobs do not change: you may not run done jobs again.",
        "1 failed job would run again.",
    ]
    assert page.confirm(client) == ("1 job runs again.", "success")
    assert statuses(*done, failed) == ["done", "done", "pending"]
    page = ask(client, "retry_jobs", *done)
    assert not page.offers_to_act
    told = post(client, page.address, **page.fields)
    assert told == ("No job changed: you may not run done jobs again.", "warning")
    allowed = staff("view_job", "retry_job", "rerun_done_job")
    page = ask(allowed, "retry_jobs", *done)
    assert page.sentences == ["2 done jobs would run a second time."]
    assert post(client, page.address, **page.fields)[1] == "warning", "the page of somebody else"
    assert page.confirm(allowed) == ("2 jobs run again.", "success")


@pytest.mark.parametrize("name", ["retry", "run_now", "cancel"])
def test_a_confirmed_action_needs_its_permission(root: Client, name: str) -> None:
    jobs = JobFactory.create_batch(2, scheduled=True)
    page = ask(root, f"{name}_jobs", *jobs)
    before = list(Job.objects.order_by("pk").values())
    client = staff("view_job", *({"retry_job", "run_now_job", "cancel_job"} - {f"{name}_job"}))
    assert client.post(page.address, page.fields).status_code in {200, 302}
    assert staff(f"{name}_job").post(page.address, page.fields).status_code == 403
    assert list(Job.objects.order_by("pk").values()) == before


@pytest.mark.parametrize("confirmed", ["", "yes", "e30:1w:x", "of another action"])
def test_a_form_that_is_not_ours_is_asked_again(root: Client, confirmed: str) -> None:
    jobs = JobFactory.create_batch(2, scheduled=True)
    if confirmed == "of another action":
        [confirmed] = ask(root, "run_now_jobs", *jobs).fields["confirmed"]
    fields = {**ask(root, "cancel_jobs", *jobs).fields, "confirmed": confirmed}
    response = root.post(url("changelist"), fields)
    assert response.status_code == 200
    assert "2 waiting jobs would be cancelled." in response.content.decode()
    assert statuses(*jobs) == ["pending", "pending"]


def test_the_page(root: Client) -> None:
    jobs = list(one_of_each().values())
    page = ask(root, "retry_jobs", *jobs, query="queue=default&task=tests.app.tasks.add&p=-1")
    html = page.html
    assert "<h1>Retry jobs</h1>" in html
    assert "django_pgqueue/admin.css" in html
    assert 'href="/admin/django_pgqueue/job/?queue=default&amp;task=tests.app.tasks.add&amp;p=-1"' in html
    form = page.content
    assert "csrfmiddlewaretoken" in form
    assert "<script" not in form
    assert "action=" not in form.split("<form")[1].split(">")[0], "it goes to the list with its filters"
    assert form.count('name="_selected_action"') == len(jobs)
    assert "enqueued from now on" not in html, "the rows were ticked"


def test_numbers_are_grouped_and_plurals_fit(root: Client) -> None:
    done = actions.RETRY[0]
    one, many = actions.Counted(1), actions.Counted(9_959)
    assert done.sentence(one) == "1 done job would run a second time."
    assert done.sentence(many) == "9,959 done jobs would run a second time."
    assert done.sentence(many._replace(is_exact=False)) == "9,959 or more done jobs would run a second time."
    assert done.sentence(one._replace(is_exact=False)) == "1 or more done jobs would run a second time."
    for states in (actions.RETRY, actions.RUN, actions.CANCEL):
        assert {status for effect in states for status in effect.states} == set(Job.Status)


def test_in_another_language_the_buttons_are_those_of_django(root: Client, settings: Any) -> None:
    settings.LANGUAGE_CODE = "de"
    page = ask(root, "retry_jobs", *JobFactory.create_batch(2, failed=True))
    with translation.override("de"):
        assert "Ja, ich bin sicher" in page.html
        assert "Nein, bitte abbrechen" in page.html


def test_periods_of_the_list_are_those_of_the_action(root: Client) -> None:
    hours_ago = timezone.now() - timedelta(hours=2)
    old = JobFactory.create(failed=True, finished_at=hours_ago)
    new = JobFactory.create_batch(2, failed=True)
    page = ask(root, "retry_jobs", new[0], query="finished=hour", across=True)
    assert page.sentences == ["2 failed jobs would run again."]
    page.confirm(root)
    assert statuses(old, *new) == ["failed", "pending", "pending"]


KEY = {"unique_key": "doc-7", "unique_scope": "live"}


def test_a_retry_that_meets_a_twin_says_why_nothing_changed() -> None:
    client = staff("view_job", "retry_job")
    job = JobFactory.create(**KEY, failed=True)
    JobFactory.create(**KEY)
    assert act(client, "retry_jobs", job) == (
        "No job changed: all of them changed in the meantime, or other jobs have their unique keys.",
        "warning",
    )
    message, level = post(client, url("retry", job.pk))
    assert message.endswith("cannot be retried, nor a job whose unique key another job has.")
    assert level == "warning"
    job.refresh_from_db()
    assert job.status == "failed"


def test_a_retry_of_many_counts_only_those_that_run(root: Client) -> None:
    JobFactory.create(**KEY)
    jobs = [JobFactory.create(**KEY, failed=True), JobFactory.create(failed=True)]
    message, _ = ask(root, "retry_jobs", *jobs).confirm(root)
    assert message == (
        "1 job runs again. "
        "1 other was left alone: it changed in the meantime, or another job has its unique key."
    )
    third = JobFactory.create(**KEY, failed=True)
    message, _ = ask(root, "retry_jobs", third, jobs[0]).confirm(root)
    assert message == (
        "No job changed: all of them changed in the meantime, or other jobs have their unique keys."
    )
