"""The action that edits waiting jobs: it asks for the values on its confirmation page."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.test import Client
from django.utils import timezone

from django_pgqueue.models import Job
from tests.support.factories import JobFactory

from .helpers import STATES, Page, ask, body, post, staff, url

pytestmark = pytest.mark.django_db


def open_page(client: Client, job: Job, **data: str) -> Page:
    """Press the button on the page of a job."""
    address = url("edit", job.pk)
    response = client.post(address, data)
    assert response.status_code == 200
    return Page(address, response.content.decode())


def test_selected_jobs_are_edited_together(root: Client) -> None:
    jobs = [JobFactory.create(), JobFactory.create(retrying=True), JobFactory.create(**STATES["blocked"])]
    running, done = JobFactory.create(running=True), JobFactory.create(done=True)
    page = ask(root, "edit_jobs", *jobs, running, done)
    assert page.sentences == [
        "3 waiting jobs would get the values below.",
        "1 running job does not change.",
        "1 finished job does not change.",
    ]
    told = post(root, page.address, **page.fields, priority="7", queue_name="slow")
    assert told == ("3 jobs were edited.", "success")
    assert set(Job.objects.filter(pk__in=[job.pk for job in jobs]).values_list("priority", "queue_name")) == {
        (7, "slow")
    }
    assert set(Job.objects.filter(pk__in=[running.pk, done.pk]).values_list("priority", flat=True)) == {0}


def test_all_that_match_are_edited_but_none_that_came_later(root: Client) -> None:
    first = JobFactory.create(queue_name="mail")
    page = ask(root, "edit_jobs", first, query="queue=mail", across=True)
    later = JobFactory.create(queue_name="mail")
    assert post(root, page.address, **page.fields, priority="7") == ("1 job was edited.", "success")
    assert Job.objects.get(pk=first.pk).priority == 7
    assert Job.objects.get(pk=later.pk).priority == 0


def test_a_single_job_is_edited_from_its_page(root: Client) -> None:
    job = JobFactory.create()
    page = open_page(root, job)
    assert f'href="{url("change", job.pk)}"' in page.content, "the way back"
    moment = timezone.localtime(timezone.now() + timedelta(days=1)).replace(microsecond=0)
    response = root.post(page.address, {**page.fields, "run_after": moment.replace(tzinfo=None).isoformat()})
    assert response["Location"] == url("change", job.pk)
    assert [message.message for message in get_messages(response.wsgi_request)] == ["1 job was edited."]
    assert Job.objects.get(pk=job.pk).run_after == moment
    [entry] = LogEntry.objects.all()
    assert f"Edit (Run after: {moment:%Y-%m-%d %H:%M:%S} UTC)" in entry.change_message


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "Enter at least one value to change."),
        ({"priority": "101"}, "Ensure this value is less than or equal to 100."),
        ({"queue_name": "a b"}, "Use only letters, digits and the characters _ - ."),
        ({"queue_name": "a" * 101}, "Ensure this value has at most 100 characters"),
        ({"run_after": "9000-01-01T00:00"}, "Enter a time within 100 years."),
        ({"run_after": "soon"}, "Enter a valid date/time."),
    ],
)
def test_bad_values_are_refused_on_the_page(root: Client, values: dict[str, str], words: str) -> None:
    first, second = JobFactory.create_batch(2)
    page = ask(root, "edit_jobs", first, second)
    response = root.post(page.address, {**page.fields, **values})
    assert response.status_code == 200
    again = Page(page.address, response.content.decode())
    assert words in again.content
    assert again.sentences[0] == "2 waiting jobs would get the values below."
    assert again.offers_to_act
    assert set(Job.objects.values_list("priority", "queue_name")) == {(0, "default")}
    assert post(root, again.address, **again.fields, priority="1")[1] == "success"


def test_a_job_that_was_claimed_in_the_meantime_is_left_alone(root: Client) -> None:
    first, second = JobFactory.create_batch(2)
    page = ask(root, "edit_jobs", first, second)
    Job.objects.filter(pk=first.pk).update(status="running")
    told, kind = post(root, page.address, **page.fields, priority="1")
    assert (told, kind) == (
        "1 job was edited. 1 other changed in the meantime and was left alone.",
        "success",
    )
    assert Job.objects.get(pk=first.pk).priority == 0


def test_jobs_that_have_left_the_list_are_told_as_such(root: Client) -> None:
    """Race: they are claimed while somebody looks at the list, which then no longer has them."""
    jobs = JobFactory.create_batch(2)
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(status="running")
    data = {"action": "edit_jobs", "_selected_action": [job.pk for job in jobs], "index": 0}
    told, level = post(root, f"{url('changelist')}?status=pending", **data)
    assert told.startswith("No job changed: running and finished jobs cannot be edited")
    assert level == "warning"


def test_a_job_that_does_not_wait_is_not_offered(root: Client) -> None:
    for state, options in STATES.items():
        job = JobFactory.create(**options)
        offered = f'action="{url("edit", job.pk)}"' in body(root, url("change", job.pk))
        assert offered is (state in {"pending", "retry", "blocked"}), state
        if not offered:
            page = open_page(root, job)
            assert not page.offers_to_act
            assert re.findall(r'name="priority"', page.content) == []


def test_it_needs_its_permission() -> None:
    job = JobFactory.create()
    other = staff("view_job", "cancel_job")
    assert 'value="edit_jobs"' not in body(other, url("changelist"))
    assert url("edit", job.pk) not in body(other, url("change", job.pk))
    assert other.post(url("edit", job.pk)).status_code == 403
    client = staff("view_job", "edit_job")
    assert 'value="edit_jobs"' in body(client, url("changelist"))
    page = open_page(client, job)
    assert post(client, page.address, **page.fields, priority="1") == ("1 job was edited.", "success")
    assert client.get(url("edit", job.pk)).status_code == 405
