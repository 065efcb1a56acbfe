"""Workers: which of them live, whatever their rows say, their pages, and how they are asked to end."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.admin import workers as admin
from django_pgqueue.admin.workers import Fleet, attendance
from django_pgqueue.models import Job, JobProgress, Worker
from django_pgqueue.monitoring.queues import lost_jobs
from django_pgqueue.monitoring.workers import busy_text
from django_pgqueue.tasks.progress import HAS_PROGRESS
from tests.support.factories import JobFactory, WorkerFactory

from .helpers import body, confirm, post, press, read, rows_of, staff, url, words

pytestmark = pytest.mark.django_db

SILENT, DEAD = 10, 41  # seconds since the last heartbeat; HEARTBEAT is 1 s, LEASE 30 s
LIST = "/admin/django_pgqueue/worker/"


def worker(age: float = -60, **columns: Any) -> Any:
    """A worker that lives, however slow the machine is."""
    return WorkerFactory.create(heartbeat_at=timezone.now() - timedelta(seconds=age), **columns)


def foreign(age: float = -60, pk: int = 9) -> Any:
    """A worker in another language, which has no supervisor, and may have no process id."""
    named = {"id": pk, "host": "go-1", "pid": 0, "supervisor": None, "version": ""}
    return worker(age, **named, holds_lock=False, started_jobs=[], slots=1)


def page(client: Client, one: Any) -> str:
    return body(client, url("change", one.pk, model="worker"))


# Who lives, and what that means for queues.


def test_the_state_follows_from_the_last_heartbeat() -> None:
    """One without started jobs sends every second heartbeat, and one in another language fewer."""
    expected = {
        worker(age, id=100 + place, state=state, started_jobs=started).pk: vital
        for place, (age, state, started, vital) in enumerate([
            (-5, "running", None, "running"), (0, "running", None, "running"),
            (0, "draining", None, "draining"), (4, "running", None, "silent"),
            (4, "draining", None, "silent"), (25, "running", None, "silent"), (31, "running", None, "dead"),
            (31, "draining", None, "dead"), (3, "running", None, "silent"), (3, "running", [], "running"),
            (3, "running", [7], "silent"),
        ])
    }  # fmt: skip
    expected |= {foreign(5).pk: "running", foreign(16, pk=10).pk: "silent"}
    assert {one.pk: one.vital for one in Fleet("default").workers} == expected


def test_the_limits_are_those_of_the_settings(settings: Any) -> None:
    settings.PGQUEUE = {"HEARTBEAT": 20, "LEASE": 120}
    worker(DEAD)
    assert [one.vital for one in Fleet("default").workers] == ["running"]
    JobFactory.create(running=True, worker=Fleet("default").workers[0].pk)
    assert lost_jobs("default") == {}


def test_jobs_that_are_claimed_ahead_do_not_look_as_if_they_ran() -> None:
    one: Any = WorkerFactory.build(slots=4)
    for busy, text in ((0, "0 of 4"), (4, "4 of 4"), (200, "4 of 4, 196 claimed ahead")):
        one.busy = busy
        assert busy_text(one) == text


NOBODY = "no worker is alive. Start one: manage.py runqueueworker"


@pytest.mark.parametrize(
    ("fleet", "serving", "trouble"),
    [
        ([], "none", NOBODY), ([{}], "1", ""), ([{"age": SILENT}, {}], "1", ""),
        ([{}, {"queues": ["mail"]}, {"queues": ["slow"]}, {"exclude_queues": ["mail"]}], "2", ""),
        ([{"exclude_queues": ["mail"]}], "none", ""), ([{"age": DEAD}], "none", NOBODY),
        ([{"age": DEAD}, {"state": "draining"}], "none", "all workers are stopping."),
        ([{"age": DEAD}, {"age": SILENT}], "1 silent", "no worker has sent a heartbeat for 10 s."),
    ],
)  # fmt: skip
def test_who_serves_a_queue_or_why_nobody(fleet: list[dict[str, Any]], serving: str, trouble: str) -> None:
    for columns in fleet:
        worker(**columns)
    assert attendance(*Fleet("default").attending("mail")) == serving
    told = re.sub(r"1\d s", "10 s", Fleet("default").trouble)
    assert told == (trouble and f"Jobs are waiting, and {trouble}")


def test_a_banner_says_why_nobody_takes_jobs(root: Client) -> None:
    lists = url("changelist", model="queue"), url("changelist", model="worker")
    assert "pgqueue-trouble" not in body(root, lists[0]), "nothing waits"
    JobFactory.create()
    for each in lists:
        assert f'role="alert">Jobs are waiting, and {NOBODY}' in body(root, each)
    worker()
    assert "pgqueue-trouble" not in body(root, lists[1])


# What the pages say.


def fleet() -> Any:
    """Some workers, and the jobs of one of them."""
    began = timezone.now() - timedelta(hours=2, minutes=5)
    here = worker(id=7, host="app-7", pid=12, queues=["mail", "slow"], memory=300 * 2**20, started_at=began)
    worker(id=8, host="app-8", pid=12, state="draining", exclude_queues=["never", "slow"], started_at=began)
    worker(300, id=6, host="app-6", pid=12, started_at=began)
    foreign()
    Worker.objects.filter(pk=9).update(started_at=began)
    for key, state, values in (
        (101, "running", {"queue_name": "mail", "deadline": began}),
        (102, "running", {"cancel_requested_at": began}), (103, "running", {"worker": 8}),
        (104, "done", {"duration": 1.5}), (105, "failed", {"task": "shop.tasks.<b>"}),
        (106, "done", {"worker": 8}),
    ):  # fmt: skip
        JobFactory.create(id=key, **{state: True, "worker": 7, "last_attempted_at": began, **values})
    JobProgress.objects.create(job_id=101, done=3, total=4)
    Job.objects.filter(pk=101).update(marks=HAS_PROGRESS)
    return here


def test_the_list(root: Client, wording: Any) -> None:
    fleet()
    assert rows_of(body(root, LIST)) == wording


def test_the_page_says_what_it_runs_and_what_it_has_ended(root: Client, wording: Any) -> None:
    text = read(root, url("change", fleet().pk, model="worker"))
    assert re.sub(r"About .* jobs/s, over the last \S+ \w+", "<rate>", text) == wording


def test_the_page_of_an_idle_worker_in_another_language(root: Client, wording: Any) -> None:
    job = JobFactory.create(running=True, worker=foreign().pk)
    assert "go-1" in body(root, url("change", job.pk))
    Job.objects.filter(pk=job.pk)._raw_delete("default")
    Worker.objects.update(started_at=timezone.now() - timedelta(hours=2))
    assert read(root, url("change", 9, model="worker")) == wording


def test_the_jobs_of_a_worker_are_for_those_who_may_see_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    one = worker()
    monkeypatch.setattr(admin, "MOST_JOBS", 2)
    JobFactory.create_batch(3, running=True, worker=one.pk, task_path="shop.tasks.secret")
    assert "secret" not in page(staff("view_worker"), one)
    html = page(staff("view_worker", "view_job"), one)
    assert html.count("shop.<wbr>tasks.<wbr>secret") == 2
    assert "This worker has claimed more jobs than are shown here." in html


# How they are asked to end.


def drains() -> list[str]:
    return list(Worker.objects.order_by("pk").values_list("drain", flat=True))


def selected(*workers: Any, **more: str) -> dict[str, Any]:
    return {"action": "replace_workers", "_selected_action": [one.pk for one in workers], **more}


@pytest.mark.parametrize(
    ("state", "hows"),
    [
        ({}, ["replace", "stop"]), ({"drain": "replace"}, ["stop"]), ({"drain": "stop"}, []),
        ({"state": "draining"}, ["stop"]), ({"age": 3600}, []),
        ({"supervisor": None}, ["stop"]),  # nobody would replace it
    ],
)  # fmt: skip
def test_the_buttons_offer_what_can_be_done(root: Client, state: dict[str, Any], hows: list[str]) -> None:
    one = worker(**state)
    html, addresses = page(root, one), {how: url(how, one.pk, model="worker") for how in ("replace", "stop")}
    assert [how for how, address in addresses.items() if f'action="{address}"' in html] == hows


@pytest.mark.parametrize(("how", "state"), [("replace", "replaced"), ("stop", "stopped")])
def test_a_worker_is_asked_to_end(root: Client, how: str, state: str, wording: Any) -> None:
    """A stop is for all processes of the supervisor."""
    for key, supervisor in ((7, 1), (8, 1), (9, 2)):
        WorkerFactory.create(id=key, host=f"app-{key}", pid=key, supervisor=supervisor)
    JobFactory.create(running=True, worker=8)
    asked = press(root, url(how, 7, model="worker"))
    assert drains() == ["", "", ""]
    assert [words(asked.html), asked.confirm(root)] == wording
    assert drains() == [how, "", ""]
    for each in (LIST, url("overview"), url("change", 7, model="worker")):
        assert f"running, to be {state}" in body(root, each)


def test_selected_processes_are_replaced_but_those_that_end_or_are_dead_are_left_alone(root: Client) -> None:
    states: Any = ({}, {}, {"drain": "replace"}, {"state": "draining"}, {"age": 3600})
    one, two, asked, draining, dead = (worker(**state) for state in states)
    nothing = press(root, LIST, **selected(asked, draining, dead))
    assert "Nothing would change." in nothing.content
    assert not nothing.offers_to_act
    effects, told = confirm(root, LIST, **selected(one, two, asked, draining, dead))
    ends = "already finishes its jobs and ends."
    assert effects[2:] == [f"{asked} {ends}", f"{draining} {ends}", f"{dead} is dead, and would not see it."]
    assert told == ("2 processes were asked to finish their jobs and end.", "success")
    assert drains() == ["replace", "replace", "replace", "", ""]


def test_what_changes_before_the_confirmation(root: Client) -> None:
    """One ends, and another comes. All that match are those that were shown."""
    first, second = WorkerFactory.create_batch(2)
    asked = press(root, LIST, **selected(first, second, select_across="1"))
    first.delete()
    WorkerFactory.create()
    assert asked.confirm(root) == ("1 process was asked to finish its jobs and end.", "success")
    assert drains() == ["replace", ""]
    assert post(root, url("stop", 999, model="worker"))[1] == "warning"


def test_it_warns_if_nobody_would_be_left(root: Client) -> None:
    one, other = worker(supervisor=7), worker(supervisor=8)
    silent = timezone.now() - timedelta(hours=1)
    for how, column, warns in (
        ("stop", {}, False), ("replace", {"state": "draining"}, False), ("stop", {"state": "draining"}, True),
        ("stop", {"state": "running", "heartbeat_at": silent}, True),
    ):  # fmt: skip
        Worker.objects.filter(pk=other.pk).update(**{"pid": other.pid, **column})
        html = root.post(url(how, one.pk, model="worker")).content.decode()
        assert ("No worker would be left that starts jobs." in html) is warns
