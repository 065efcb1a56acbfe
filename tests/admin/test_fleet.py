"""Which workers live, whatever their rows say, and which queues have none."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue.admin import workers as admin
from django_pgqueue.admin.workers import Fleet
from django_pgqueue.models import Job, JobProgress
from django_pgqueue.monitoring.queues import lost_jobs
from django_pgqueue.monitoring.workers import busy_text, queues_text
from django_pgqueue.postgres.timeout import TimeLimitReached
from django_pgqueue.tasks.progress import HAS_PROGRESS
from tests.support.factories import JobFactory, QueueFactory, WorkerFactory

from .helpers import body, staff, url

pytestmark = pytest.mark.django_db

SILENT, DEAD = 10, 41  # seconds since the last heartbeat; HEARTBEAT is 1 s, LEASE 30 s


def worker(age: float = 0, **columns: Any) -> Any:
    return WorkerFactory.create(heartbeat_at=timezone.now() - timedelta(seconds=age), **columns)


@pytest.mark.parametrize(
    ("age", "state", "vital"),
    [
        (-5, "running", "running"),
        (1, "running", "running"),
        (1, "draining", "draining"),
        (4, "running", "silent"),
        (4, "draining", "silent"),
        (29, "running", "silent"),
        (31, "running", "dead"),
        (31, "draining", "dead"),
    ],
)
def test_the_state_follows_from_the_last_heartbeat(age: float, state: str, vital: str) -> None:
    worker(age, state=state)
    assert [one.vital for one in Fleet("default").workers] == [vital]


@pytest.mark.parametrize(("started", "vital"), [([], "running"), ([7], "silent"), (None, "silent")])
def test_a_worker_without_started_jobs_sends_every_second_heartbeat(
    started: list[int] | None, vital: str
) -> None:
    worker(3, started_jobs=started)
    assert [one.vital for one in Fleet("default").workers] == [vital]


def test_the_limits_are_those_of_the_settings(settings: Any) -> None:
    settings.PGQUEUE = {"HEARTBEAT": 20, "LEASE": 120}
    worker(DEAD)
    assert [one.vital for one in Fleet("default").workers] == ["running"]
    JobFactory.create(running=True, worker=Fleet("default").workers[0].pk)
    assert lost_jobs("default") == {}


@pytest.mark.parametrize(
    ("queues", "excluded", "text"),
    [
        ([], [], "all"),
        ([], ["never"], "all but never"),
        ([], ["never", "slow"], "all but never, slow"),
        (["mail", "slow"], [], "mail, slow"),
    ],
)
def test_the_queues_of_a_worker_in_words(queues: list[str], excluded: list[str], text: str) -> None:
    assert queues_text(WorkerFactory.build(queues=queues, exclude_queues=excluded)) == text


def test_jobs_that_are_claimed_ahead_do_not_look_as_if_they_ran() -> None:
    one = WorkerFactory.build(slots=4)
    texts = []
    for busy in (0, 4, 200):
        one.busy = busy  # type: ignore[attr-defined]
        texts.append(busy_text(one))
    assert texts == ["0 of 4", "4 of 4", "4 of 4, 196 claimed ahead"]


@pytest.mark.parametrize(
    ("fleet", "expected"),
    [
        ([], "none"),
        ([{}], "1"),
        ([{}, {"queues": ["mail"]}, {"queues": ["slow"]}, {"exclude_queues": ["mail"]}], "2"),
        ([{"exclude_queues": ["mail"]}], "none"),
        ([{"age": DEAD}, {"state": "draining"}], "none"),
        ([{"age": DEAD}, {"age": SILENT}], "1 silent"),
        ([{"age": SILENT}, {}], "1"),
    ],
)
def test_the_workers_of_a_queue(fleet: list[dict[str, Any]], expected: str) -> None:
    for columns in fleet:
        worker(**columns)
    assert Fleet("default").attendance("mail") == expected


@pytest.mark.parametrize(
    ("fleet", "said"),
    [
        ([], "no worker is alive. Start one: manage.py runqueueworker"),
        ([{"age": DEAD}], "no worker is alive. Start one: manage.py runqueueworker"),
        ([{"age": DEAD}, {"age": SILENT}], "no worker has sent a heartbeat for 10 s."),
        ([{"age": DEAD}, {"state": "draining"}], "all workers are stopping."),
        ([{"age": DEAD}, {}], ""),
    ],
)
@pytest.mark.parametrize("model", ["queue", "worker"])
def test_a_banner_says_why_nobody_takes_jobs(
    root: Client, model: str, fleet: list[dict[str, Any]], said: str
) -> None:
    for columns in fleet:
        worker(**columns)
    address = url("changelist", model=model)
    assert "pgqueue-trouble" not in body(root, address), "nothing waits"
    JobFactory.create()
    page = body(root, address)
    assert ("pgqueue-trouble" in page) == bool(said)
    assert f'role="alert">{"Jobs are waiting, and " * bool(said)}{said}' in page or not said


def test_after_an_outage_nothing_looks_as_if_it_ran(root: Client) -> None:
    """All processes died 41 s ago, and nobody is there to change their rows."""
    worker(DEAD, id=7, host="app-7", state="running")
    job = JobFactory.create(running=True, worker=7)
    for address in (url("overview"), url("changelist", model="worker"), url("change", 7, model="worker")):
        page = body(root, address)
        assert 'class="pgqueue-status pgqueue-dead">dead<' in page
        assert 'pgqueue-status pgqueue-running">running<' not in page
        assert re.search(r"\b4\d s ago", page)
    assert "worker lost, waiting for recovery" in body(root, url("change", 7, model="worker"))
    for address in (url("overview"), url("changelist", model="queue")):
        page = body(root, address)
        assert ">1 lost<" in page
        assert ">none<" in page
        job.refresh_from_db()
        assert job.status == "running", "the page only looks"


def test_jobs_of_workers_that_are_dead_or_not_listed_are_lost() -> None:
    worker(id=1)
    worker(SILENT, id=2)
    worker(DEAD, id=3)
    for pk in (1, 2, 3, 4):
        JobFactory.create(running=True, worker=pk, queue_name=f"of {pk}")
    JobFactory.create(queue_name="of 1")
    assert lost_jobs("default") == {"of 3": 1, "of 4": 1}


def test_a_queue_that_no_worker_serves_says_so_with_its_oldest_job(root: Client) -> None:
    worker(host="app-7", exclude_queues=["never"])
    JobFactory.create_batch(12, queue_name="never", run_after=timezone.now() - timedelta(minutes=5))
    JobFactory.create(queue_name="served", run_after=timezone.now() - timedelta(minutes=6))
    QueueFactory.create(name="never used")
    page = body(root, url("changelist", model="queue"))
    assert page.count('<strong class="pgqueue-alarm">none</strong>') == 1
    assert '<strong class="pgqueue-alarm">5 min</strong>' in page
    assert '<td class="field-oldest">6 min</td>' in page


def test_the_page_of_a_worker_lists_its_running_jobs(root: Client) -> None:
    worker(id=7, host="app-7", pid=12)
    started = timezone.now() - timedelta(hours=2, minutes=5)
    job = JobFactory.create(running=True, worker=7, last_attempted_at=started, queue_name="mail")
    asked = JobFactory.create(running=True, worker=7, cancel_requested_at=started)
    other = JobFactory.create(running=True, worker=8)
    JobFactory.create(worker=7, done=True)
    page = body(root, url("change", 7, model="worker")).split('id="pgqueue-history-box"')[0]
    assert "app-7:12" in page
    assert page.index(url("change", job.pk)) < page.index(url("change", asked.pk)), "the longest first"
    assert url("change", other.pk) not in page
    assert page.count('/change/">') == 2
    assert "<td>2 h 5 min</td>" in page
    assert page.count("running</span> (asked to stop)<") == 1
    assert "worker lost" not in page


def test_the_jobs_of_a_worker_are_for_those_who_may_see_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    worker(id=7)
    monkeypatch.setattr(admin, "MOST_JOBS", 2)
    assert "No jobs are running." in body(staff("view_worker", "view_job"), url("change", 7, model="worker"))
    JobFactory.create_batch(3, running=True, worker=7, task_path="shop.tasks.secret")
    assert "secret" not in body(staff("view_worker"), url("change", 7, model="worker"))
    page = body(staff("view_worker", "view_job"), url("change", 7, model="worker"))
    assert page.count("shop.<wbr>tasks.<wbr>secret") == 2
    assert "This worker has claimed more jobs than are shown here." in page


@pytest.mark.parametrize(
    ("page", "model", "most"), [("changelist", "worker", 4), ("change", "worker", 3), ("overview", "job", 13)]
)
def test_the_number_of_statements_does_not_depend_on_the_number_of_rows(
    root: Client, page: str, model: str, most: int
) -> None:
    address = url(page, *([1] if page == "change" else []), model=model)

    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            body(root, address)
        return sum("pgqueue_" in entry["sql"] for entry in captured)

    worker(id=1)
    few = statements()
    for pk in range(2, 12):
        worker(id=pk, queues=[f"q{pk}"])
        JobFactory.create_batch(3, running=True, worker=pk, queue_name=f"q{pk}")
        JobFactory.create_batch(3, running=True, worker=1, queue_name=f"q{pk}")
    assert statements() == few <= most


def test_the_page_of_a_worker_shows_what_it_runs_and_what_it_has_ended(root: Client) -> None:
    here = worker(started_at=timezone.now() - timedelta(hours=2), memory=300 * 2**20, slots=4)
    there = worker()
    running = JobFactory.create(running=True, worker=here.pk)
    JobProgress.objects.create(job_id=running.pk, done=3, total=4)
    Job.objects.filter(pk=running.pk).update(marks=HAS_PROGRESS)
    ended = [JobFactory.create(done=True, worker=here.pk) for _ in range(2)]
    ended.append(JobFactory.create(failed=True, worker=here.pk, task="shop.tasks.<b>"))
    other = JobFactory.create(done=True, worker=there.pk)
    page = body(root, url("change", here.pk, model="worker"))
    assert "300.0\xa0MB" in page
    assert "2 h" in page
    assert "3 of 4 (75 %)" in page
    assert '<progress class="pgqueue-bar pgqueue-slots" max="4" value="1"' in page
    history = page.split('id="pgqueue-history"')[1]
    assert [f">{job.pk}<" in history for job in [*ended, other]] == [True, True, True, False]
    assert "shop.<wbr>tasks.&lt;b&gt;" in history
    assert "jobs/s, over the last" in history
    assert f'href="{url("task", "tests.app.tasks.add", model="jobstat")}"' in page
    assert "It ran no job that ended lately." in body(root, url("change", worker().pk, model="worker"))


def test_a_history_that_is_too_slow_does_not_keep_the_page(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> Any:
        raise TimeLimitReached

    monkeypatch.setattr(admin, "ended_by", fail)
    assert "What it has ended could not be read in time." in body(
        root, url("change", worker().pk, model="worker")
    )
