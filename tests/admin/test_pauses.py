"""Pauses in the admin: their own pages, the pages of queues, and the banner. The rules are in tests/jobs."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from django_pgqueue import enqueue, pause
from django_pgqueue.models import Job, Pause
from tests.app.tasks import noop
from tests.support.factories import JobFactory, QueueFactory

from .helpers import act, ask, body, confirm, post, staff, url

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
LISTS = ("job", "queue", "worker", "jobstat", "pause")


def test_the_page_of_a_pause_resumes_it_and_the_history_has_both(root: Client) -> None:
    assert root.post(url("add", model="pause"), {"kind": "queue", "name": "mail"}).status_code == 302
    found = Pause.objects.get()
    page = body(root, url("change", found.pk, model="pause"))
    assert "deletelink" not in page
    assert f'action="{url("resume", found.pk, model="pause")}"' in page
    assert post(root, url("resume", found.pk, model="pause")) == ("1 pause was ended.", "success")
    assert [entry.change_message for entry in LogEntry.objects.all()] == ["Resumed.", '[{"added": {}}]']


def test_the_reason_and_the_end_can_be_changed_but_not_the_target(root: Client) -> None:
    found = pause(queue="mail", reason="down", author="ann")
    given = {"kind": "all", "name": "other", "reason": "slow", "until_0": "", "until_1": ""}
    assert root.post(url("change", found.pk, model="pause"), given).status_code == 302
    found = Pause.objects.get()
    assert (found.kind, found.name, found.reason, found.author) == ("queue", "mail", "slow", "root")


def test_a_second_pause_is_refused_where_the_first_can_be_changed(root: Client) -> None:
    pause(queue="taken")
    answer = root.post(url("add", model="pause"), {"kind": "queue", "name": "taken"})
    assert "already exists" in answer.content.decode()
    assert Pause.objects.count() == 1


def test_several_are_resumed_together(root: Client) -> None:
    found = [pause(queue="mail", author="ann", reason="<down>"), pause(task="shop.tasks.sync")]
    page = body(root, url("changelist", model="pause"))
    assert "delete_selected" not in page
    assert "queue mail" in page
    assert "task shop.tasks.sync" in page
    effects, told = confirm(
        root,
        url("changelist", model="pause"),
        action="resume_selected",
        _selected_action=[p.pk for p in found],
    )
    assert effects == [
        "queue mail is paused by ann: &lt;down&gt;. Its jobs would start again.",
        "task shop.tasks.sync is paused. Its jobs would start again.",
    ]
    assert told == ("2 pauses were ended.", "success")
    assert not Pause.objects.exists()


def test_a_resume_of_everything_says_what_it_does(root: Client) -> None:
    found = pause(everything=True)
    address = url("resume", found.pk, model="pause")
    assert f'href="{url("change", found.pk, model="pause")}"' in root.post(address).content.decode()
    effects, told = confirm(root, address)
    assert effects == ["everything is paused. Its jobs would start again."]
    assert told == ("1 pause was ended.", "success")


def test_one_pause_is_resumed_at_once_in_the_list(root: Client) -> None:
    found = pause(queue="mail")
    address = url("changelist", model="pause")
    told = post(root, address, action="resume_selected", _selected_action=[found.pk])
    assert told == ("1 pause was ended.", "success")


def test_the_form_says_what_a_name_is_and_suggests_those_in_use(root: Client) -> None:
    QueueFactory.create(name="mail")
    form = body(root, url("add", model="pause"))
    assert "The name of a queue, or the path of a task" in form
    assert 'list="pgqueue-names"' in form
    [found] = re.findall(r'<datalist id="pgqueue-names">(.*?)</datalist>', form)
    assert '<option value="mail" label="queue">' in found
    assert f'<option value="{noop.module_path}" label="task">' in found
    changed = body(root, url("change", pause(queue="mail").pk, model="pause"))
    assert "datalist" not in changed


@pytest.mark.parametrize("model", LISTS)
def test_a_banner_says_that_everything_is_paused(root: Client, model: str) -> None:
    pages = [url("changelist", model=model), url("overview")]
    assert [page for page in pages if "Everything is paused" in body(root, page)] == []
    found = pause(everything=True, reason="<moving>", author="ann", duration=HOUR)
    for page in pages:
        html = body(root, page)
        assert "Everything is paused by ann until" in html
        assert ": &lt;moving&gt;." in html
        assert f'href="{url("change", found.pk, model="pause")}"' in html
    Pause.objects.update(until=timezone.now() - HOUR)
    assert [page for page in pages if "Everything is paused" in body(root, page)] == []


def test_the_overview_lists_what_is_paused(root: Client) -> None:
    JobFactory.create(queue_name="mail")
    pause(queue="mail", reason="down", author="ann")
    pause(task="shop.tasks.sync")
    page = body(root, url("overview"))
    assert "Queue mail is paused by ann: down." in page
    assert "Task shop.tasks.sync is paused." in page
    assert page.count("paused by ann: down") == 2, "once in the row of the queue"


def test_the_list_of_queues_says_what_is_paused_and_pauses(root: Client) -> None:
    QueueFactory.create(name="mail")
    QueueFactory.create(name="slow")
    pause(queue="mail", reason="down", author="ann")
    page = body(root, url("changelist", model="queue"))
    assert "paused by ann: down" in page
    assert f'href="{url("add", model="pause")}?kind=queue&amp;name=slow"' in page
    assert "name=mail" not in page.replace("queue=mail", "")
    form = body(root, url("add", model="pause"), kind="queue", name="slow")
    assert 'value="slow"' in form


def test_who_may_not_pause_sees_what_is_paused() -> None:
    QueueFactory.create(name="mail")
    QueueFactory.create(name="slow")
    found = pause(queue="mail", author="ann")
    client = staff("view_queue", "view_job")
    page = body(client, url("changelist", model="queue"))
    assert "paused by ann" in page
    assert "/pause/" not in page
    assert client.get(url("changelist", model="pause")).status_code == 403
    assert client.post(url("resume", found.pk, model="pause")).status_code == 403
    viewer = staff("view_pause")
    assert "resume" not in body(viewer, url("change", found.pk, model="pause"))
    assert viewer.post(url("resume", found.pk, model="pause")).status_code == 403
    assert Pause.objects.exists()
    resumer = staff("view_pause", "delete_pause")
    assert resumer.get(url("resume", found.pk, model="pause")).status_code == 405
    assert post(resumer, url("resume", found.pk, model="pause"))[1] == "success"


@override_settings(ROOT_URLCONF="tests.admin.sites")
@pytest.mark.django_db(databases=["default", "other"])
def test_another_site_pauses_in_its_database(root: Client) -> None:
    pause(queue="mail")
    add = reverse("ops:django_pgqueue_pause_add")
    assert root.post(add, {"kind": "queue", "name": "mail"}).status_code == 302
    found = Pause.objects.using("other").get()
    assert Pause.objects.count() == 1
    answer = root.post(reverse("ops:django_pgqueue_pause_resume", args=[found.pk]))
    assert answer["Location"] == reverse("ops:django_pgqueue_pause_changelist")  # it has no page any more
    assert not Pause.objects.using("other").exists()
    assert Pause.objects.count() == 1


def test_a_paused_job_is_retried_with_its_budget_and_other_blocked_ones_are_not(root: Client) -> None:
    paused = JobFactory.create(status="blocked", waiting_reason="paused by ann", attempts=3)
    blocked = JobFactory.create(status="blocked", waiting_reason="at most 2 at once")
    page = ask(root, "retry_jobs", paused, blocked)
    assert page.sentences == [
        "1 job whose task is paused would have all its attempts again when the pause ends.",
        "1 blocked job does not change.",
    ]
    assert page.confirm(root) == ("1 job runs again.", "success")
    assert Job.objects.get(pk=paused.pk).forgiven_attempts == 3
    assert f'action="{url("retry", paused.pk)}"' in body(root, url("change", paused.pk))
    assert f'action="{url("retry", blocked.pk)}"' not in body(root, url("change", blocked.pk))
    assert act(root, "run_now_jobs", paused)[1] == "warning"
    assert "The pause of its task is over" in body(root, url("change", paused.pk))


@pytest.mark.django_db
def test_without_time_zones_a_pause_and_an_edit_have_an_end(root: Client, settings: Any) -> None:
    """Then forms have naive times, in the time zone of the settings."""
    settings.USE_TZ = False
    soon = (timezone.now() + timedelta(hours=1)).replace(microsecond=0)
    data = {"kind": "queue", "name": "mail", "until_0": f"{soon:%Y-%m-%d}", "until_1": f"{soon:%H:%M:%S}"}
    assert root.post(url("add", model="pause"), data).status_code == 302
    assert Pause.objects.get().until == soon
    job = JobFactory.create()
    asked = root.post(url("edit", job.pk)).content.decode()
    confirmed = asked.split('name="confirmed" value="')[1].split('"')[0]
    root.post(url("edit", job.pk), {"confirmed": confirmed, "run_after": f"{soon:%Y-%m-%dT%H:%M:%S}"})
    assert Job.objects.get().run_after == soon
    job = enqueue(noop)
    form = root.get(url("clone", job.pk)).context["form"]
    values = {name: form[name].value() or "" for name in form.fields}
    root.post(url("clone", job.pk), {**values, "run_after": f"{soon:%Y-%m-%dT%H:%M:%S}"})
    assert Job.objects.latest("pk").run_after == soon
