"""The page that asks before an action changes several jobs. Only the jobs that it showed change."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import chain
from time import monotonic
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.db.models import BooleanField
from django.db.models.expressions import RawSQL
from django.test import Client
from django.utils import timezone

from django_pgqueue import cancel
from django_pgqueue.admin.bulk import actions
from django_pgqueue.models import Job
from tests.support.factories import JobFactory
from tests.support.wording import shown

from .helpers import STATES, Page, act, ask, post, press, staff, statuses, url

pytestmark = pytest.mark.django_db

LEFT_ALONE = "1 other was left alone: it changed in the meantime, or another job has its unique key."
KEY = {"unique_key": "doc-7", "unique_scope": "live"}


def finish(job: Job, status: str = "done") -> None:
    """Change a running or failed job to this status, as if it had changed in the meantime."""
    Job.objects.filter(pk=job.pk)._raw_delete("default")
    JobFactory.create(id=job.pk, **{status: True})


@pytest.mark.parametrize("action", ["retry", "run_now", "cancel", "edit"])
def test_what_the_page_says_is_what_happens(root: Client, action: str, wording: Any) -> None:
    paused = {"blocked": True, "waiting_reason": "paused"}
    states = {**STATES, "scheduled": {"scheduled": True}, "paused": paused}
    of = {name: JobFactory.create_batch(2, **options) for name, options in states.items()}

    def rows(name: str) -> list[Any]:
        return list(Job.objects.filter(pk__in=[job.pk for job in of[name]]).order_by("pk").values())

    before = {name: rows(name) for name in of}
    page = ask(root, f"{action}_jobs", *chain(*of.values()), query="queue=default&p=-1")
    assert before == {name: rows(name) for name in of}, "it only asks"
    assert page.content.count('name="_selected_action"') == 18
    form = page.content.split("<form")[1].split(">")[0]
    assert "action=" not in form, "it goes to the list with its filters"
    values = {"priority": "7", "queue_name": "slow"} if action == "edit" else {}
    told, level = post(root, page.address, **page.fields, **values)
    changed = {name: rows(name)[0] for name in of if rows(name) != before[name]}
    after = [
        f"{name}: now {row['status']}, priority {row['priority']}, queue {row['queue_name']}"
        f"{', asked to stop' * (row['cancel_requested_at'] is not None)}"
        for name, row in changed.items()
    ]
    assert "\n".join([shown(page.html), f"{level}: {told}", *after]) == wording
    assert LogEntry.objects.count() == 2 * len(changed)


def test_where_nothing_would_change_there_is_only_a_way_back(root: Client) -> None:
    for action, state in (("retry", "running"), ("run_now", "done"), ("cancel", "done")):
        page = ask(root, f"{action}_jobs", *JobFactory.create_batch(2, **STATES[state]))
        assert "2 jobs are selected. Nothing would change." in page.html
        assert not page.offers_to_act
        assert ">Back</a>" in page.content
        assert post(root, page.address, **page.fields)[0].startswith("No job changed: ")
    jobs = JobFactory.create_batch(2, running=True, cancel_requested_at=timezone.now())
    assert ask(root, "cancel_jobs", *jobs).sentences == ["2 running jobs were already asked to stop."]


@pytest.mark.usefixtures("small_pages")
def test_all_that_match(root: Client, django_assert_max_num_queries: Any) -> None:
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


# What has changed since the page was shown.


def test_jobs_that_came_in_the_meantime_are_left_alone(root: Client) -> None:
    waiting = JobFactory.create_batch(2)
    page = ask(root, "cancel_jobs", waiting[0], across=True)
    late = JobFactory.create()
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
    assert page.confirm(root) == (f"3 jobs run again. {LEFT_ALONE}", "success")
    assert statuses(*failed, running, done) == ["pending", "done", "pending", "done", "pending"]


@pytest.mark.parametrize(
    ("action", "words"),
    [("cancel", "1 job was cancelled, or asked to stop if it was running."), ("edit", "1 job was edited.")],
)
def test_a_job_that_was_claimed_in_the_meantime_is_left_alone(root: Client, action: str, words: str) -> None:
    first, second = JobFactory.create_batch(2)
    page = ask(root, f"{action}_jobs", first, second)
    Job.objects.filter(pk=first.pk).update(status="running", worker=7, lease=1)
    told = post(root, page.address, **page.fields, priority="1")
    assert told == (f"{words} 1 other changed in the meantime and was left alone.", "success")
    first.refresh_from_db()
    assert (first.cancel_requested_at, first.priority) == (None, 0)


def test_jobs_that_have_left_the_list_are_told_as_such(root: Client) -> None:
    """Race: they are claimed while somebody looks at the list, which then no longer has them."""
    jobs = JobFactory.create_batch(2)
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(status="running")
    data = {"action": "edit_jobs", "_selected_action": [job.pk for job in jobs], "index": 0}
    told, level = post(root, f"{url('changelist')}?status=pending", **data)
    assert told.startswith("No job changed: running and finished jobs cannot be edited")
    assert level == "warning"


def test_a_search_for_a_key_that_is_gone_is_none_for_text(root: Client, monkeypatch: Any) -> None:
    """When all are counted, and when they are changed."""
    blocked = {"status": "blocked", "wait_position": 5, "waiting_reason": "full"}
    keyed = JobFactory.create_batch(2, limit_key="acme", **blocked)
    other = JobFactory.create(args=["key:acme", 1])
    counted = ask(root, "cancel_jobs", keyed[0], query="q=key:acme", across=True)
    monkeypatch.setattr(actions, "FIRST_COUNTED", (1,))
    page = ask(root, "cancel_jobs", keyed[0], query="q=key:acme", across=True)
    cancel(keyed)
    assert count_all(root, page).sentences == []
    assert counted.confirm(root)[0] == "No job changed: all of them changed in the meantime."
    assert statuses(other) == ["pending"]


def test_a_retry_counts_only_those_that_no_twin_holds_up(root: Client) -> None:
    JobFactory.create(**KEY)
    twin, other = JobFactory.create(**KEY, failed=True), JobFactory.create(failed=True)
    refused = "No job changed: all of them changed in the meantime, or other jobs have their unique keys."
    assert act(root, "retry_jobs", twin) == (refused, "warning")
    message, level = post(root, url("retry", twin.pk))
    assert message.endswith("cannot be retried, nor a job whose unique key another job has.")
    assert level == "warning"
    assert ask(root, "retry_jobs", twin, other).confirm(root)[0] == f"1 job runs again. {LEFT_ALONE}"
    assert LogEntry.objects.get().object_id == str(other.pk), "what was left alone has no entry"
    third = JobFactory.create(**KEY, failed=True)
    assert ask(root, "retry_jobs", twin, third).confirm(root) == (refused, "warning")
    assert statuses(twin, other) == ["failed", "pending"]


# Many jobs.


def count_all(client: Client, page: Page, **values: Any) -> Page:
    """Press the button that counts all of them, as the script does."""
    assert 'name="count" value="all"' in page.content
    assert "Not all of them are counted yet." in page.html
    fields = {**page.fields, **values, "count": "all"}
    found = press(client, page.address, **fields)  # it changes nothing, also if there is one job or none
    assert 'name="count"' not in found.content
    return found


@pytest.mark.parametrize("is_counted", [True, False])
def test_jobs_are_counted_on_request(root: Client, monkeypatch: pytest.MonkeyPatch, is_counted: bool) -> None:
    """Confirmed from either page, the same jobs change: the ones that matched at first."""
    monkeypatch.setattr(actions, "FIRST_COUNTED", (1, 2))
    failed = JobFactory.create_batch(5, failed=True)
    other = JobFactory.create(failed=True, queue_name="other")
    page = ask(root, "retry_jobs", failed[0], query="status=failed&queue=default", across=True)
    assert page.sentences == ["2+ failed jobs would run again."]
    assert "2+ jobs are selected." in page.html
    assert "enqueued from now on" in page.html
    late = JobFactory.create(failed=True)
    if is_counted:
        page = count_all(root, page)
        assert page.sentences == ["5 failed jobs would run again."]
    assert page.confirm(root)[0] == "5 jobs run again."
    assert statuses(late, other, *failed) == ["failed", "failed", *["pending"] * 5]


@pytest.mark.parametrize("jobs", [1, 0])
def test_what_is_not_known_is_not_nothing(root: Client, monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    monkeypatch.setattr(actions, "FIRST_LOOK", 0.0)
    found = JobFactory.create_batch(jobs, failed=True)
    asked = ask(root, "retry_jobs", JobFactory.create(), query="status=failed", across=True)
    assert asked.sentences == ["? failed jobs would run again."]
    assert "? jobs are selected. Filters: status=failed. Nothing has changed yet." in asked.html
    page = count_all(root, asked)
    assert page.sentences == ["1 failed job would run again."] * jobs
    assert page.offers_to_act is bool(jobs)
    assert statuses(*found) == ["failed"] * jobs
    assert asked.confirm(root)[1] == ("success" if jobs else "warning")
    assert statuses(*found) == ["pending"] * jobs


def test_values_of_an_edit_stay_while_all_are_counted(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "FIRST_COUNTED", (1,))
    jobs = JobFactory.create_batch(3)
    page = ask(root, "edit_jobs", jobs[0], query="status=pending", across=True)
    page = count_all(root, page, priority="7", queue_name="a b")
    assert page.sentences == ["3 waiting jobs would get the values below."]
    assert re.findall(r'name="(?:priority|queue_name)" value="([^"]*)"', page.content) == ["7", "a b"]
    assert "errorlist" not in page.content, "nothing is saved yet"
    assert post(root, page.address, **page.fields, priority="7") == ("3 jobs were edited.", "success")


@pytest.mark.parametrize(("first", "number"), [(1, "1+"), (30, "?")])
def test_the_first_count_ends_in_time(monkeypatch: pytest.MonkeyPatch, first: int, number: str) -> None:
    """Each row takes a tenth of a second to look at, as a search that reads many others."""
    monkeypatch.setattr(actions, "FIRST_COUNTED", (first, 1000))
    monkeypatch.setattr(actions, "FIRST_LOOK", 0.6)
    monkeypatch.setattr(actions, "SECONDS", 60.0)
    JobFactory.create_batch(40, failed=True)
    slow = Job.objects.filter(RawSQL("pg_sleep(0.1) IS NOT NULL", [], BooleanField()))
    limits, began = actions.bounds(Job.objects.all(), across=True), monotonic()
    kinds = [effect for effect in actions.RETRY if effect.kind in {"failed", "waiting"}]
    rest = "0" if first == 1 else "?"
    assert [str(each) for each in actions.glance(slow, limits, kinds)] == [number, rest]
    assert monotonic() - began < 3, "4 s for all rows"
    monkeypatch.setattr(actions, "SECONDS", 0.4)
    assert str(actions.count(slow, limits, kinds)[0]) == number, "and not less than is known"


def test_of_many_jobs_some_are_counted_and_all_change(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MOST_COUNTED", 3)
    monkeypatch.setattr(actions, "FIRST_COUNTED", (1,))
    blocked = JobFactory.create_batch(2, status="blocked", waiting_reason="paused")
    waiting, running = JobFactory.create_batch(4), JobFactory.create(running=True)
    page = count_all(root, ask(root, "retry_jobs", waiting[0], across=True))
    assert page.sentences == [
        "3+ waiting jobs would be due now, with all their attempts again.",
        "2 jobs whose task is paused would have all their attempts again when the pause ends.",
        "1 running job does not change.",
    ]
    assert "6+ jobs are selected." in page.html
    assert page.confirm(root) == ("6 jobs run again.", "success")
    assert statuses(*blocked, running) == ["blocked", "blocked", "running"]


def test_of_a_long_history_the_last_jobs_are_looked_at(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MOST_FINISHED", 3)
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


# Who may, and which forms.


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


def test_a_form_that_is_not_ours_is_asked_again(root: Client) -> None:
    jobs = JobFactory.create_batch(2, scheduled=True)
    [of_another_action] = ask(root, "run_now_jobs", *jobs).fields["confirmed"]
    fields = ask(root, "cancel_jobs", *jobs).fields
    for confirmed in ("", "yes", "e30:1w:x", of_another_action):
        page = press(root, url("changelist"), **{**fields, "confirmed": confirmed})
        assert page.sentences == ["2 waiting jobs would be cancelled."]
    assert statuses(*jobs) == ["pending", "pending"]


def test_in_another_language_the_buttons_are_those_of_django(root: Client, settings: Any) -> None:
    settings.LANGUAGE_CODE = "de"
    page = ask(root, "retry_jobs", *JobFactory.create_batch(2, failed=True))
    assert [
        words for words in ("Ja, ich bin sicher", "Nein, bitte abbrechen") if words not in page.html
    ] == []


# An edit asks for values.


def test_a_single_job_is_edited_from_its_page(root: Client) -> None:
    job = JobFactory.create()
    address = url("edit", job.pk)
    page = press(root, address)
    assert f'href="{url("change", job.pk)}"' in page.content, "the way back"
    moment = timezone.localtime(timezone.now() + timedelta(days=1)).replace(microsecond=0)
    response = root.post(address, {**page.fields, "run_after": moment.replace(tzinfo=None).isoformat()})
    assert response["Location"] == url("change", job.pk)
    assert [message.message for message in get_messages(response.wsgi_request)] == ["1 job was edited."]
    assert Job.objects.get(pk=job.pk).run_after == moment
    [entry] = LogEntry.objects.all()
    assert f"Edit (Run after: {moment:%Y-%m-%d %H:%M:%S} UTC)" in entry.change_message
    finish(job)
    page = press(root, address)
    assert not page.offers_to_act
    assert 'name="priority"' not in page.content


def test_bad_values_are_refused_on_the_page(root: Client) -> None:
    page = ask(root, "edit_jobs", *JobFactory.create_batch(2))
    bad: list[tuple[dict[str, str], str]] = [
        ({}, "Enter at least one value to change."),
        ({"priority": "101"}, "Ensure this value is less than or equal to 100."),
        ({"queue_name": "a b"}, "Use only letters, digits and the characters _ - ."),
        ({"queue_name": "a" * 101}, "Ensure this value has at most 100 characters"),
        ({"run_after": "9000-01-01T00:00"}, "Enter a time within 100 years."),
        ({"run_after": "soon"}, "Enter a valid date/time."),
    ]
    for values, words in bad:
        page = press(root, page.address, **{**page.fields, **values})
        assert words in page.content
        assert page.sentences[0] == "2 waiting jobs would get the values below."
        assert page.offers_to_act
    assert set(Job.objects.values_list("priority", "queue_name")) == {(0, "default")}
    assert post(root, page.address, **page.fields, priority="1") == ("2 jobs were edited.", "success")
