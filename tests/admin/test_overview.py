"""The overview of the queues."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone
from django.utils.html import strip_tags

from django_pgqueue import RateLimit, pause, set_limit
from django_pgqueue.admin import overview as page_module
from django_pgqueue.admin.charts import numbers
from django_pgqueue.models import Pause
from django_pgqueue.monitoring import health
from django_pgqueue.postgres.timeout import TimeLimitReached
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory, WorkerFactory
from tests.support.statistics import classes

from .helpers import body, post, staff, url

pytestmark = pytest.mark.django_db


def ago(**time: float) -> Any:
    return timezone.now() - timedelta(**time)


def page_of(client: Client, **query: str) -> str:
    return body(client, url("overview"), **query)


def troubles(page: str) -> list[str]:
    """Return the list of problems as HTML, one item each."""
    part = page.split('id="pgqueue-verdict"')[1].split("</section>")[0]
    return re.findall(r"<li>(.*?)</li>", part, re.DOTALL)


def row_of(page: str, queue: str) -> str:
    """Return the row of a queue as HTML."""
    rows = page.split('id="pgqueue-queues-now"')[1].split("</table>")[0].split("<tr")
    [row] = [each for each in rows if f">{queue}</a>" in each]
    return row


def cells(page: str, queue: str) -> list[str]:
    """Return the text of each cell of a queue after its name."""
    return [
        " ".join(strip_tags(cell).split())
        for cell in re.findall(r"<td.*?</td>", row_of(page, queue), re.DOTALL)
    ]


def test_the_ways_to_the_overview(root: Client) -> None:
    for address in (url("changelist"), url("changelist", model="queue"), "/admin/django_pgqueue/"):
        assert f'href="{url("overview")}"' in body(root, address)
    for address in (url("changelist", model="queue"), "/admin/django_pgqueue/"):
        assert url("overview") not in body(staff("view_queue"), address)


def test_a_queue_that_is_well(root: Client) -> None:
    WorkerFactory.create_batch(2)
    JobFactory.create(run_after=ago(minutes=2))
    page = page_of(root)
    assert re.search(
        r'<h2 id="pgqueue-headline">Healthy: 2 workers, 0 jobs/min, the oldest ready job waits 2 min</h2>',
        page,
    )
    assert troubles(page) == []
    assert "pgqueue-verdict-bad" not in page


def limits_on(page: str) -> list[tuple[str, str]]:
    """Return the addresses and texts of the links to limits."""
    part = page.split('id="pgqueue-queues-now"')[1].split('id="pgqueue-workers-now"')[0]
    return re.findall(r'<a href="([^"]*/limit/[^"]*)">([^<]*)</a>', part)


def test_the_limits_of_queues(root: Client) -> None:
    """Each row has the limit of its queue, and that of all queues together is told once."""
    JobFactory.create_batch(2, queue_name="mail", running=True)
    JobFactory.create(queue_name="slow", running=True)
    assert limits_on(page_of(root)) == []
    set_limit(queue="mail", concurrency=5, rate_limit=RateLimit(100, per=timedelta(minutes=1)))
    set_limit(queue="idle", concurrency=1)
    set_limit(task="tests.app.tasks.noop", concurrency=7)
    set_limit(everything=True, concurrency=40)
    page = page_of(root)
    assert limits_on(page) == [
        (url("change", quote("queue:mail"), model="limit"), "2 of 5 run, at most 100 a minute"),
        (url("change", "*", model="limit"), "3 of 40 run"),
    ]
    assert "2 of 5 run" in row_of(page, "mail")
    shown = page_of(staff("view_job"))
    assert limits_on(shown) == []
    assert "3 of 40 run" in shown, "without a link for those who may not see limits"


def no_worker() -> None:
    JobFactory.create(queue_name="mail")


def unserved() -> None:
    WorkerFactory.create(queues=["other"])
    JobFactory.create(queue_name="mail")


def late() -> None:
    WorkerFactory.create()
    QueueFactory.create(name="mail")
    JobFactory.create(queue_name="mail", run_after=ago(hours=1))


def failing() -> None:
    WorkerFactory.create()
    JobStatFactory.create(queue_name="mail", failed=20)


def lost() -> None:
    WorkerFactory.create()
    JobFactory.create(queue_name="mail", running=True, worker=12345)


def held() -> None:
    WorkerFactory.create()
    JobFactory.create(queue_name="mail")
    pause(queue="mail", author="ann", reason="<down>")


@pytest.mark.parametrize(
    ("happen", "text", "fix"),
    [
        (no_worker, "no worker claims jobs", "<code>manage.py runqueueworker</code>"),
        (no_worker, "no worker claims jobs", '<a href="/admin/django_pgqueue/worker/">Workers</a>'),
        (unserved, "mail: served by 0 of at least 1 worker", "<code>manage.py runqueueworker</code>"),
        (
            late,
            "mail: the oldest ready job waits for 1 h",
            '<a href="/admin/django_pgqueue/queue/mail/change/">',
        ),
        (failing, "20 jobs failed in the last hour, 0 in the hour before", ">Failures</a>"),
        (lost, "1 running job has lost its worker", ">Workers</a>"),
        (
            held,
            "Queue mail is paused by ann: &lt;down&gt;.",
            '<input type="hidden" name="queue" value="mail">',
        ),
    ],
)
def test_each_problem_leads_to_its_cure(
    root: Client, happen: Callable[[], None], text: str, fix: str
) -> None:
    happen()
    page = page_of(root)
    [trouble] = troubles(page)
    assert text in trouble
    assert fix in trouble
    assert '<h2 id="pgqueue-headline">1 problem</h2>' in page


@pytest.mark.parametrize("happen", [no_worker, unserved, late, held])
def test_a_user_sees_no_way_to_what_is_not_permitted(happen: Callable[[], None]) -> None:
    happen()
    page = page_of(staff("view_job"))
    [trouble] = troubles(page)
    for refused in ("/worker/", "/queue/", "/pause/", "<button", "<form"):
        assert refused not in trouble
    assert 'name="button"' not in page


def test_what_is_paused_is_told(root: Client) -> None:
    WorkerFactory.create()
    JobFactory.create(queue_name="mail")
    pause(everything=True, author="ann")
    pause(task="shop.tasks.sync")
    page = page_of(root)
    [trouble] = troubles(page)
    assert "Everything is paused by ann." in trouble
    assert f'<a href="{url("changelist", model="pause")}">Pauses</a>' in trouble
    assert "<button" not in trouble, "the page of pauses asks first"
    assert "Task shop.tasks.sync is paused." in page
    assert "everything is paused" in row_of(page, "mail")


def test_the_tiles(root: Client) -> None:
    worker = WorkerFactory.create(slots=4)
    JobFactory.create_batch(3, run_after=ago(minutes=20))
    JobFactory.create(running=True, worker=worker.pk)
    JobStatFactory.create(minute=ago(minutes=5), failed=7)
    JobStatFactory.create(minute=ago(minutes=90), failed=9)
    JobStatFactory.create(minute=ago(minutes=1), done=1200)
    page = page_of(root)
    board = page.split('id="pgqueue-board"')[1].split("</ul>")[0]
    texts = [
        re.findall(r"pgqueue-tile-(?:value|note)\">(.*?)</(?:strong|span)>", tile)
        for tile in board.split("</li>")
    ]
    found = [tuple(strip_tags(text) for text in pair) for pair in texts if pair]
    assert [found[0], found[1], found[3]] == [
        ("3", "the oldest waits 20 min"), ("1", "of 4 slots"), ("7", "9 in the hour before"),
    ]  # fmt: skip
    assert int(found[2][0].replace(",", "")) >= 600
    assert board.count('<svg class="pgqueue-spark') == 4
    assert "?status=failed&amp;finished=hour" in board
    assert "pgqueue-tile-alarm" not in board, "fewer than before"
    assert (
        "<a "
        not in page_of(staff("view_job"))
        .split('id="pgqueue-board"')[1]
        .split("Finished")[1]
        .split("</li>")[0]
    )


def test_what_waits_in_paused_queues_is_not_late(root: Client) -> None:
    WorkerFactory.create()
    JobFactory.create(queue_name="mail", run_after=ago(minutes=20))
    JobFactory.create_batch(2, queue_name="held", run_after=ago(hours=3))
    pause(queue="held")
    board = page_of(root).split('id="pgqueue-board"')[1]
    note = "the oldest waits 20 min; 2 in paused queues"
    assert re.findall(r'pgqueue-tile-note">(.*?)<', board)[0] == note


def test_the_row_of_a_queue(root: Client) -> None:
    dead = WorkerFactory.create(heartbeat_at=ago(hours=1))
    WorkerFactory.create(exclude_queues=["never"])
    JobFactory.create(queue_name="mail", run_after=ago(minutes=3))
    JobFactory.create_batch(2, queue_name="mail", scheduled=True)
    JobFactory.create(queue_name="mail", retrying=True)
    JobFactory.create(queue_name="mail", status="blocked", waiting_reason="waits for jobs 1, 2")
    JobFactory.create(queue_name="mail", running=True, worker=dead.pk, last_attempted_at=ago(minutes=2))
    JobStatFactory.create(queue_name="mail", minute=ago(minutes=5), done=12_345, failed=2, retried=3)
    JobStatFactory.create(queue_name="mail", minute=ago(hours=5), failed=4, retried=5)
    JobFactory.create(queue_name="never", run_after=ago(minutes=2))
    QueueFactory.create(name="idle")
    JobStatFactory.create(queue_name="gone", minute=ago(hours=3))
    page = page_of(root)
    found = cells(page, "mail")[:-1]
    done = found.pop(8)
    assert found == ["1", "1", "3 min", "2", "1", "1", "1 1 lost", "2 min", "3", "2", "8", "6"]
    assert re.fullmatch(r"12,345 (2\.[789]|3\.[0-4]) jobs/s", done), "since a full quarter of an hour"
    assert "?queue=mail&amp;status=retry" in row_of(page, "mail")
    assert cells(page, "idle")[:3] == ["1", "0", "-"]
    assert "?queue=mail&amp;status=failed&amp;finished=day" in row_of(page, "mail")
    assert '<svg class="pgqueue-gauge" ' in row_of(page, "mail")
    assert "Lost: the worker of these jobs is dead." in page
    assert cells(page, "never")[:3] == ["none", "1", "2 min"]
    assert row_of(page, "never").count("pgqueue-alarm") == 2
    assert row_of(page, "gone")


def test_the_row_of_a_late_queue_is_red(root: Client) -> None:
    late()
    assert "pgqueue-gauge-alarm" in row_of(page_of(root), "mail")
    pause(queue="mail")
    assert "alarm" not in row_of(page_of(root), "mail"), "its jobs wait on purpose"


def test_the_workers(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = WorkerFactory.create(host="app-9", slots=4, queues=["mail"], version="2026-03")
    JobFactory.create(running=True, worker=worker.pk)
    part = page_of(root).split('id="pgqueue-workers-now"')[1]
    assert url("change", worker.pk, model="worker") in part
    texts = re.findall(r"<td.*?>(.*?)</td>", part, re.DOTALL)
    *texts, beat, version = [strip_tags(text) for text in texts]
    assert (texts, version) == (["mail", "1 of 4", "running"], "2026-03")
    assert re.fullmatch(r"\d s ago", beat)
    assert 'class="pgqueue-gauge-used" width="25"' in part
    monkeypatch.setattr(page_module, "MOST_WORKERS", 2)
    WorkerFactory.create_batch(2)
    assert "1 more worker is not shown here." in page_of(root)


def test_the_overview_of_nothing(root: Client) -> None:
    page = page_of(root)
    assert "There are no queues yet" in page
    assert "manage.py runqueueworker" in page
    assert "No attempts have ended in this time." in page


@pytest.mark.parametrize(("span", "rows"), [("1h", 59), ("24h", 96), ("7d", 168), ("x", 59)])
def test_the_charts_of_each_span(root: Client, span: str, rows: int) -> None:
    JobStatFactory.create(
        minute=ago(minutes=5), done=30, failed=1, wait_histogram=classes(c1=31), run_histogram=classes(c9=31)
    )
    page = page_of(root, part="charts", span=span)
    times = page.split('id="pgqueue-times"')[1]
    assert rows - 1 <= len(re.findall(r'<tr><th scope="row" data-value', times)) <= rows + 1
    heads = re.findall(r'data-stroke="\w+">([^<]+)</th>', page)
    assert heads == [
        "failed", "retried", "done", "waited p50", "waited p95", "waited p99",
        "ran p50", "ran p95", "ran p99",
    ]  # fmt: skip
    assert page.count('aria-current="true"') == 1
    assert "pgqueue-verdict" not in page
    assert "<html" not in page


def test_a_part_has_what_changes_by_the_second_and_no_frame(root: Client) -> None:
    page = page_of(root, part="now")
    for name in ("pgqueue-verdict", "pgqueue-board", "pgqueue-queues-now", "pgqueue-workers-now"):
        assert f'id="{name}"' in page
    assert "pgqueue-graphs" not in page
    assert "<html" not in page
    whole = page_of(root)
    assert len(re.findall(r'data-pgqueue-source="\?part=now" data-pgqueue-pause="5"', whole)) >= 4
    assert 'data-pgqueue-source="?part=charts&amp;span=1h" data-pgqueue-pause="30"' in whole
    assert staff().get(url("overview"), {"part": "now"}).status_code == 403


def test_each_statement_about_jobs_has_a_time_limit(root: Client) -> None:
    seen = []

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "pgqueue_" in sql:
            with connection.connection.cursor() as cursor:
                [(limit,)] = cursor.execute("SHOW statement_timeout").fetchall()
            seen.append((limit, sql))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        page_of(root)
    assert len(seen) >= 9
    assert [sql for limit, sql in seen if limit != "2s"] == []


@pytest.mark.parametrize(
    ("module", "part", "region"),
    [
        (health, "depths", "queues"), (health, "Crew", "workers"), (health, "lost_jobs", "queues"),
        (page_module, "breakdown", "queues"), (page_module, "charts", "graphs"), (health, "series", ""),
    ],
)  # fmt: skip
def test_a_part_that_is_too_slow_says_so(
    root: Client, module: Any, part: str, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: Any, **__: Any) -> None:
        raise TimeLimitReached

    JobFactory.create()
    WorkerFactory.create(host="app-9")
    monkeypatch.setattr(module, part, slow)
    page = page_of(root)
    found = re.findall(
        r'id="pgqueue-(queues|workers|graphs)(?:-now)?"(?:(?!id="pgqueue-).)*<p class="pgqueue-slow"',
        page,
        re.DOTALL,
    )
    assert found == [region] * bool(region)
    assert ("app-9" in page) == (part != "Crew")
    assert (">?</a>" in page) == (part in {"depths", "Crew", "series"})


def test_pause_and_resume(root: Client) -> None:
    JobFactory.create(queue_name="mail")
    assert post(root, url("overview"), button="pause", queue="mail", reason="down") == (
        "Queue mail is paused.", "success",
    )  # fmt: skip
    made = Pause.objects.get()
    assert (made.kind, made.name, made.reason, made.author) == ("queue", "mail", "down", "root")
    assert 'value="resume"' in row_of(page_of(root), "mail")
    assert post(root, url("overview"), button="resume", queue="mail") == ("Queue mail is resumed.", "success")
    assert not Pause.objects.exists()
    assert post(root, url("overview"), button="resume", queue="mail")[1] == "warning"
    said = LogEntry.objects.order_by("pk").values_list("user__username", "object_repr", "change_message")
    assert list(said) == [("root", "queue mail", "Paused."), ("root", "queue mail", "Resumed.")]


def test_who_may_pause_and_resume() -> None:
    JobFactory.create(queue_name="mail")
    pause(queue="held")
    JobFactory.create(queue_name="held")
    for permissions, buttons in (
        (["view_job"], set()),
        (["view_job", "add_pause"], {"pause"}),
        (["view_job", "delete_pause"], {"resume"}),
        (["add_pause", "delete_pause"], None),
    ):
        client = staff(*permissions)
        if buttons is not None:
            assert set(re.findall(r'name="button" value="(\w+)"', page_of(client))) == buttons
        for button, queue in (("pause", "mail"), ("resume", "held")):
            if button not in (buttons or ()):
                assert client.post(url("overview"), {"button": button, "queue": queue}).status_code == 403
    assert [row.name for row in Pause.objects.all()] == ["held"]


def test_a_form_that_somebody_has_changed(root: Client) -> None:
    for data in (
        {},
        {"button": "drop", "queue": "mail"},
        {"button": "pause"},
        {"button": "pause", "queue": "a b"},
        {"button": "resume", "queue": "a\0b"},
    ):
        assert root.post(url("overview"), data).status_code == 400
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.create_superuser("other"))
    assert strict.post(url("overview"), {"button": "pause", "queue": "mail"}).status_code == 403
    assert not Pause.objects.exists()


def test_pages_need_no_inline_script_or_style(root: Client) -> None:
    job = JobFactory.create(failed=True)
    for address in (url("overview"), url("change", job.pk), url("changelist")):
        page = body(root, address)
        assert "<style" not in page
        assert " style=" not in page
        assert not re.search(r"<script(?![^>]* src=)(?![^>]*application/json)", page)
        assert not re.search(r" on\w+=", page)
        assert "django_pgqueue/admin.css" in page


@pytest.mark.parametrize(
    ("rate", "text"), [(0, "0"), (2.0, "2"), (2.25, "2.2"), (12.5, "12"), (1234.0, "1,234")]
)
def test_a_whole_rate_has_no_decimals(rate: float, text: str) -> None:
    assert numbers("", [rate]).texts == [text]
