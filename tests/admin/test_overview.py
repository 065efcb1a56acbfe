"""The overview of the queues."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client

from django_pgqueue import RateLimit, pause, set_limit
from django_pgqueue.admin import overview as page_module
from django_pgqueue.admin.charts import numbers
from django_pgqueue.models import Pause, Worker
from tests.monitoring.test_health import all_paused, failing, lost, paused, skipping, slow_job
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory, WorkerFactory, ago
from tests.support.figures import classes, roll_up
from tests.support.jobs import sql

from .helpers import body, listed, post, seen, staff, url, words

pytestmark = pytest.mark.django_db

OVERVIEW = "/admin/django_pgqueue/job/overview/"


def worker(**columns: Any) -> Any:
    """Return a worker that does not fall silent while a slow machine shows pages."""
    return WorkerFactory.create(**{"heartbeat_at": ago(hours=-1), **columns})


def test_the_ways_to_the_overview(root: Client, list_at_the_side: None) -> None:
    for address in (url("changelist"), url("changelist", model="queue"), "/admin/django_pgqueue/"):
        assert f'href="{OVERVIEW}"' in body(root, address)
    assert OVERVIEW not in body(staff("view_queue"), "/admin/django_pgqueue/")


def healthy() -> None:
    worker()
    worker()
    JobFactory.create(run_after=ago(minutes=2))


def no_worker() -> None:
    JobFactory.create(queue_name="mail")


def unserved() -> None:
    worker(queues=["other"])
    JobFactory.create(queue_name="mail")


def late() -> None:
    worker()
    QueueFactory.create(name="mail")
    JobFactory.create(queue_name="mail", run_after=ago(hours=1))


WITH_A_WORKER = (failing, lost, paused, all_paused, skipping, slow_job)


@pytest.mark.parametrize("happen", [healthy, no_worker, unserved, late, *WITH_A_WORKER])
def test_each_problem_has_a_fix(happen: Callable[[], None], root: Client, wording: Any) -> None:
    """For who may do everything; and who may only view jobs sees no way to what is refused."""
    if happen in WITH_A_WORKER:
        worker()
    happen()
    page = body(root, OVERVIEW)
    healths = words(page, "pgqueue-health"), seen(staff("view_job"), OVERVIEW, "pgqueue-health")
    assert [*healths] == wording
    assert ("everything is paused" in words(page, "pgqueue-queues-now")) is (happen is all_paused)
    notes = words(page, "pgqueue-notes")
    told = "Task tests.app.tasks.add is paused." in notes
    assert told is (happen is paused), "it is none of the problems"


def busy() -> None:
    """Queues in each state, and a worker."""
    dead = worker(id=6, host="app-6", pid=1, heartbeat_at=ago(hours=1))
    worker(id=7, host="app-9", pid=2, slots=4, exclude_queues=["never"], version="2026-03")
    worker(id=8, host="app-9", queues=["other"])
    JobFactory.create(queue_name="mail", run_after=ago(minutes=20))
    JobFactory.create_batch(2, queue_name="mail", scheduled=True)
    JobFactory.create(queue_name="mail", retrying=True)
    JobFactory.create(queue_name="mail", status="blocked", waiting_reason="waits for jobs 1, 2")
    JobFactory.create(queue_name="mail", running=True, worker=dead.pk, last_attempted_at=ago(minutes=2))
    JobFactory.create(queue_name="slow", running=True, worker=7, last_attempted_at=ago(minutes=2))
    JobStatFactory.create(queue_name="mail", minute=ago(minutes=5), done=12_345, failed=2, retried=3)
    JobStatFactory.create(queue_name="mail", minute=ago(minutes=90), failed=9)
    JobStatFactory.create(queue_name="mail", minute=ago(hours=5), failed=4, retried=5)
    JobFactory.create(queue_name="never", run_after=ago(minutes=2))
    JobFactory.create_batch(2, queue_name="held", run_after=ago(hours=3))
    pause(queue="held", author="ann", reason="down")
    QueueFactory.create(name="idle")
    JobStatFactory.create(queue_name="gone", minute=ago(hours=3))
    set_limit(queue="slow", concurrency=5, rate_limit=RateLimit(100, per=timedelta(minutes=1)))
    set_limit(queue="idle", concurrency=1)
    set_limit(task="tests.app.tasks.noop", concurrency=7)
    set_limit(everything=True, concurrency=40)


def test_tiles_queues_and_workers(root: Client, wording: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits in paused queues is not late. Each row has the limit of its queue."""
    busy()
    monkeypatch.setattr(page_module, "MOST_WORKERS", 2)
    found = {}
    for who, client in (("root", root), ("a viewer", staff("view_job"))):
        page = body(client, OVERVIEW)
        for part in ("pgqueue-board", "pgqueue-queues-now", "pgqueue-workers-now"):
            found[f"{part} of {who}"] = words(page, part)
    assert found == wording


def test_what_is_bad_is_red(root: Client) -> None:
    def alarms() -> list[str]:
        rows = body(root, OVERVIEW).split('id="pgqueue-queues-now"')[1].split("</table>")[0].split("<tr")
        return [row.split("</a>")[0].rpartition(">")[2] for row in rows if "alarm" in row]

    late()
    assert alarms() == ["mail"]
    pause(queue="mail")
    assert alarms() == [], "its jobs wait on purpose"
    Worker.objects.update(exclude_queues=["never"])
    JobFactory.create(queue_name="never", run_after=ago(minutes=2))
    assert alarms() == ["never"]
    for hours, is_red in ((0.1, True), (1.5, False), (1.6, False)):  # more failures than in the hour before
        JobFactory.create(failed=True, finished_at=ago(hours=hours))
        assert ("pgqueue-tile-alarm" in body(root, OVERVIEW)) is is_red
    board = seen(root, OVERVIEW, "pgqueue-board")
    assert re.search(r"Failed in the last hour 1 <\S+> not retried since; 2 in the hour before", board)


def test_a_tile_has_what_finishes_in_a_minute(root: Client) -> None:
    for back in range(3):  # a minute may end meanwhile
        JobStatFactory.create(minute=ago(minutes=back), done=1200)
    [count] = re.findall(r"Finished a minute ([\d,]+)", seen(root, OVERVIEW, "pgqueue-board"))
    assert int(count.replace(",", "")) >= 600


def test_the_charts_of_each_span(root: Client) -> None:
    times = {"wait_histogram": classes(c1=31), "run_histogram": classes(c9=31)}
    JobStatFactory.create(minute=ago(minutes=5), done=30, failed=1, **times)
    for span, rows in (("24h", 96), ("7d", 168), ("x", 59)):
        page = body(root, OVERVIEW, part="charts", span=span)
        for chart in page.split('id="pgqueue-')[1:]:
            if found := re.findall(r'<tr><th scope="row" data-value', chart):
                assert rows - 1 <= len(found) <= rows + 1
    assert re.findall(r'data-stroke="\w+">([^<]+)</th>', page) == [
        "failed", "retried", "done", "waited p50", "waited p95", "waited p99",
        "ran p50", "ran p95", "ran p99",
    ]  # fmt: skip
    looks = re.findall(r'pgqueue-series-(\w+)" data-stroke="(\w+)">(waited|ran)', page)
    assert len({color for color, _stroke, _label in looks}) == len(looks) == 6, "each line has its own color"
    assert page.count('aria-current="true"') == 1
    assert "pgqueue-health" not in page
    assert "<html" not in page


@pytest.mark.parametrize("page", ["overview", "queue", "task"])
def test_charts_and_tables_from_one_time_to_another(root: Client, page: str) -> None:
    """The quarters that lie in the span, at least in part, are counted, and no others."""
    task, quarter = "tests.app.tasks.mail", timedelta(minutes=15)
    address = {"overview": OVERVIEW, "queue": url("change", "default", model="queue")}.get(page)
    address = address or url("task", task, model="jobstat")
    end = ago(hours=5).replace(minute=30, second=0, microsecond=0)
    for steps, done in ((-1, 1), (0, 10), (7, 200), (8, 3000)):  # from the start
        minute = end - 8 * quarter + steps * quarter + timedelta(minutes=7)
        JobStatFactory.create(minute=minute, task_path=task, done=done)
    JobStatFactory.create(minute=ago(minutes=3), task_path=task, done=40000)
    connection.ensure_connection()
    roll_up(connection.connection)
    start, last = f"{end - 8 * quarter:%Y-%m-%dT%H:%M}", f"{end:%Y-%m-%dT%H:%M}"
    response = root.get(address, {"span_from": start, "span_to": last})
    html, context = response.content.decode(), response.context
    charts = context["pgqueue"]["charts"] if page == "queue" else context["charts"]
    [drawn] = [each for each in charts[0].series if each.label == "done"]
    count = 15 if page == "overview" else 1  # it has attempts a minute
    assert [round(count * value) for value in drawn.values] == [10, 0, 0, 0, 0, 0, 0, 200]
    if page != "overview":
        assert "Done 210" in " ".join(words(html, "pgqueue-figures").split())
    nav = html.split('class="pgqueue-spans"')[1].split("</nav>")[0]
    assert "aria-current" not in nav
    assert 'href="?span=24h"' in nav, "without the times"
    form = html.split('id="pgqueue-other-times" open')[1].split("</details>")[0]
    assert f'name="span_from" value="{start}"' in form
    assert "Quarters of an hour are counted" in form
    if page == "queue":  # a form in the form of the settings would end it
        assert "<form" not in form
        assert form.count('form="pgqueue-span-form"') == 3
        assert "</form>" in html.split('<form id="pgqueue-span-form" method="get">')[1]
    if page == "overview":
        [source] = re.findall(r'data-pgqueue-source="(\?part=charts[^"]*)"', html)
        part = body(root, OVERVIEW + unescape(source))
        first, second = (text.split('id="pgqueue-throughput"')[1][:999] for text in (part, html))
        assert first == second
        assert "part=" not in part.split('class="pgqueue-spans"')[1].split("</details>")[0], "a whole page"


def test_the_charts_of_the_depth_and_the_tile_say_where_it_leads(root: Client) -> None:
    """The last point is the newest count, and the number above the chart's link shows the same jobs."""
    sql(
        "INSERT INTO pgqueue_depth (queue_name, minute, ready, running, oldest_ready, versions)"
        " SELECT queue, date_bin('1 minute', now() - back * interval '1 minute', 'epoch'),"
        " 20000 + 100 * back, 3, 90, ARRAY['v' || 9 - back / 10] "
        " FROM unnest(ARRAY['', 'default']) AS queue, unnest(ARRAY[0, 5, 10]) AS back"
    )
    JobStatFactory.create(minute=ago(minutes=5), done=3000)
    job = JobFactory.create(run_after=ago(minutes=3))
    page = body(root, OVERVIEW, part="charts")
    heads = re.findall(r'data-stroke="\w+">([^<]+)</th>', page)
    assert heads[-7:] == ["ready", "running", "blocked", "retrying", "scheduled", "arrive", "end"]
    depth = page.split('id="pgqueue-depth"')[1].split('id="pgqueue-flow"')[0]
    values = re.findall(r'<td data-value="(2\d{4})">', depth)
    assert values == ["20000", "20500", "21000"]
    assert page.count('data-mark="v9"') == 3, "on each chart that is not empty"
    assert "empty in about 3 h 20 min" in seen(root, OVERVIEW, "pgqueue-board")
    of_queue = url("change", "default", model="queue")
    assert "20,000 at " in seen(root, of_queue, "pgqueue-now")
    assert "Jobs that arrive and end" in body(root, of_queue)
    assert listed(root, due="now") == [job.pk]


def test_a_part_has_what_changes_by_the_second_and_no_frame(root: Client) -> None:
    page = body(root, OVERVIEW, part="now")
    for name in ("pgqueue-health", "pgqueue-board", "pgqueue-queues-now", "pgqueue-workers-now"):
        assert f'id="{name}"' in page
    assert "pgqueue-graphs" not in page
    assert "<html" not in page
    whole = body(root, OVERVIEW)
    assert len(re.findall(r'data-pgqueue-source="\?part=now" data-pgqueue-pause="5"', whole)) >= 4
    assert 'data-pgqueue-source="?part=charts&amp;span=1h" data-pgqueue-pause="30"' in whole
    assert "pgqueue-shards" not in whole, "it has none to choose from"
    assert staff().get(OVERVIEW, {"part": "now"}).status_code == 403


@pytest.mark.parametrize(
    ("queue", "target", "shown"),
    [("*", ("all", ""), "Everything"), ("mail", ("queue", "mail"), "Queue mail")],
)
def test_pause_and_resume(root: Client, queue: str, target: tuple[str, str], shown: str) -> None:
    """A pause of everything is the first problem: it explains the others, such as that no worker is there."""
    JobFactory.create(queue_name="mail")
    assert "Yes, pause everything" in seen(root, OVERVIEW, "pgqueue-health")
    told = post(root, OVERVIEW, queue=queue, button="pause", reason="the bank is down")
    assert told == (f"{shown} is paused.", "success")
    made = Pause.objects.get()
    assert ((made.kind, made.name), made.reason, made.author) == (target, "the bank is down", "root")
    if queue == "*":
        html = seen(root, OVERVIEW, "pgqueue-health")
        assert html.index("the bank is down") < html.index("no worker claims jobs")
        assert "pause everything" not in html
    assert post(root, OVERVIEW, queue=queue, button="resume") == (f"{shown} is resumed.", "success")
    assert not Pause.objects.exists()
    assert post(root, OVERVIEW, queue=queue, button="resume")[1] == "warning", "in another tab, too late"
    said = LogEntry.objects.order_by("pk").values_list("user__username", "change_message")
    assert list(said) == [("root", "Paused."), ("root", "Resumed.")]


def test_who_may_pause_and_resume() -> None:
    JobFactory.create(queue_name="mail")
    JobFactory.create(queue_name="held")
    pause(queue="held")
    queues = {"pause": "mail", "resume": "held"}
    for may, other, permission in (("pause", "resume", "add_pause"), ("resume", "pause", "delete_pause")):
        client = staff("view_job", permission)
        assert set(re.findall(r'name="button" value="(\w+)"', body(client, OVERVIEW))) == {may}
        for button, status in ((other, 403), (may, 302)):
            assert client.post(OVERVIEW, {"button": button, "queue": queues[button]}).status_code == status
    assert 'name="button"' not in body(staff("view_job"), OVERVIEW)


def test_a_form_that_somebody_has_changed(root: Client) -> None:
    for button, queue in (("", ""), ("drop", "mail"), ("pause", ""), ("pause", "a b"), ("resume", "a\0b")):
        data = {name: each for name, each in (("button", button), ("queue", queue)) if each}
        assert root.post(OVERVIEW, data).status_code == 400
    assert not Pause.objects.exists()


def test_a_whole_rate_has_no_decimals() -> None:
    assert numbers("", [0, 2.0, 2.25, 12.5, 1234.0]).texts == ["0", "2", "2.2", "12", "1,234"]
