"""The page of a job: what it says in each situation, its timeline, logs, panels, progress and payload, and
why the job waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from difflib import ndiff
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from django_pgqueue import cancel, pause, set_limit
from django_pgqueue.admin import links_for
from django_pgqueue.admin.bulk import task as bulk
from django_pgqueue.admin.job_page import page as page_module
from django_pgqueue.admin.job_page.timeline import parts_of, timeline
from django_pgqueue.admin.jobs import fields
from django_pgqueue.encoding import TOO_DEEP
from django_pgqueue.explanation import Reason
from django_pgqueue.models import DeclaredTask, Job, JobProgress, UniqueWindow, Worker
from django_pgqueue.models.job import Step
from django_pgqueue.redaction import REDACTED
from tests.app import secret_tasks
from tests.receipts.models import Charge, Order, Receipt
from tests.support.factories import ERROR, BatchFactory, JobFactory, QueueFactory, WorkerFactory, ago
from tests.support.jobs import sql
from tests.support.wording import shown

from .helpers import TIME, body, listed, read, staff, url, words

pytestmark = pytest.mark.django_db

T0 = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SIGN_IN = secret_tasks.sign_in.module_path
GONE = 4_503_599_627_370_496_123  # a worker
KEY = {"unique_key": "doc-7", "unique_scope": "waiting"}


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def page(client: Client, job: Job, query: str = "") -> str:
    return body(client, url("change", job.pk) + query)


def failed(number: int, start: float, end: float) -> dict[str, Any]:
    times = {"started_at": at(start).isoformat(), "finished_at": at(end).isoformat()}
    return {**ERROR, "class": "Down", "message": "", "attempt": number, "worker": "7", **times}


# What the whole page says.

LINE = {"at": T0.isoformat(), "level": "INFO", "logger": "shop.tasks", "message": "<b>sent</b>"}
LOGS = [
    {"attempt": 1, "lines": [LINE, {**LINE, "message": "the end"}], "left_out": 3, "after": 1},
    {"attempt": 2, "lines": [{**LINE, "at": "odd"}]},
]
STEP = {
    "name": "render", "kind": "step", "attempt": 2, "seconds": 1.5, "wake_at": None,
    "finished_at": T0.isoformat(), "result": "<b>done</b>",
}  # fmt: skip
TRACE = (
    'Traceback:\n  File "/srv/x.py", line 1, in x\n    a()\n'
    '  File "/v/lib/python3.13/site-packages/y.py", line 2, in y\n    b()\nDown'
)


def whole() -> Job:
    """A failed job that has whatever a job may have."""
    start = ago(hours=2, minutes=22)
    early, later = start + timedelta(minutes=6), start + timedelta(minutes=20)
    ended = later + timedelta(minutes=1)
    errors = [
        {**ERROR, "class": "shop.Down", "message": "first", "traceback": TRACE, "worker": str(GONE)},
        {
            **ERROR, "attempt": 2, "message": f"no {'x' * 160}", "step": "parse", "worker": "7",
            "progress": {"done": 3.0, "total": 4.0, "note": "page 3"},
        },
    ]  # fmt: skip
    times = [(early, early + timedelta(seconds=9)), (later, ended)]
    for error, (first, last) in zip(errors, times, strict=True):
        error |= {"started_at": first.isoformat(), "finished_at": last.isoformat()}
    return JobFactory.create(
        id=101, failed=True, queue_name="mail", priority=5, args=[1, "<b>"], kwargs={"a": 1},
        metadata={"b": 2}, context={"language": "de"}, tenant="acme", result=3, group_key="tiny shop",
        **KEY, attempts=2, crash_count=1, timeout=60, worker=GONE, errors=errors, logs=LOGS, steps=[STEP],
        enqueued_at=start, run_after=start + timedelta(minutes=5), started_at=early, last_attempted_at=later,
        finished_at=ended, duration=60.0,
    )  # fmt: skip


def runs() -> Job:
    """A running job with progress and steps, whose worker and queue have pages."""
    WorkerFactory.create(id=7, host="app-7", pid=12)
    QueueFactory.create(name="mail")
    began = ago(minutes=4, seconds=30)
    job = JobFactory.create(
        id=102, running=True, queue_name="mail", worker=7, marks=1 | 8, current_step="load",
        enqueued_at=began, run_after=began, started_at=began, last_attempted_at=began,
        cancel_requested_at=began, context={"user": "acme"},
    )  # fmt: skip
    JobProgress.objects.create(job=job, done=4500, total=10_000, note="<b>reading</b>")
    Step.objects.create(job_id=job.pk, name="approved", kind="event")
    return job


def done() -> Job:
    """One that has nothing to tell."""
    times = ("enqueued_at", "run_after", "started_at", "last_attempted_at", "finished_at")
    same = dict.fromkeys(times, ago(minutes=4, seconds=30))
    nothing: dict[str, Any] = {"result": None, "args": [], "error_fingerprint": "", "duration": 0.0}
    return JobFactory.create(id=103, done=True, **nothing, **same)


def tied() -> Job:
    """One in a batch that runs after jobs and batches, of which one is gone."""
    before = BatchFactory.create(id=201, name="import")
    over = BatchFactory.create(id=202, name="other", over=True)
    parents = [JobFactory.create(id=104, batch=before), JobFactory.create(id=105, done=True), over]
    job = JobFactory.create(id=106, parents=parents, batch=before, enqueued_at=ago(minutes=4, seconds=30))
    Job.objects.filter(pk=job.pk).update(parent_ids=[*(each.pk for each in parents), 2**40])
    return job


def waits_for_an_event() -> Job:
    """It is not due in a century."""
    since = ago(minutes=4, seconds=30)
    job = JobFactory.create(
        id=107, marks=1, current_step="approved", attempts=1, enqueued_at=since, started_at=since,
        last_attempted_at=since, run_after=since + timedelta(seconds=3.1e9),
    )  # fmt: skip
    Step.objects.create(job_id=job.pk, name="approved", kind="event")
    return job


def receipt() -> Job:
    """One with a payload."""
    row = Receipt.objects.create(order=Order.objects.create(pk=17), email="<b>@c.d")
    since = ago(minutes=4, seconds=30)
    Job.objects.filter(pk=row.pk).update(run_after=since, enqueued_at=since)
    return Job.objects.get(pk=row.pk)


SITUATIONS: list[Callable[[], Job]] = [whole, runs, done, tied, waits_for_an_event, receipt]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_page(situation: Callable[[], Job], root: Client, wording: Any) -> None:
    """What a superuser reads, and what of it changes for who may only view jobs."""
    job = situation()
    html = page(root, job)
    ids = re.findall(r' id="([^"]+)"', html)
    assert set(re.findall(r'href="#([^"]+)"', html)) <= set(ids)
    regions = re.findall(r'aria-labelledby="(pgqueue-[^"]*)"', html)
    assert len(regions) == len(set(regions)), "each landmark has a name of its own"
    text = TIME.sub("<time>", shown(html))
    assert re.sub(rf"(?<=[/(]){job.pk}(?=[/)])", "<id>", text) == wording
    if situation in {whole, runs, tied}:
        seen = read(staff("view_job"), url("change", job.pk))
        changed = [line for line in ndiff(text.splitlines(), seen.splitlines()) if line[0] in "+-"]
        assert "\n".join(changed) == wording(name="hidden")


def test_odd_values_in_history_do_not_break_the_page(root: Client) -> None:
    steps = [{"name": "<i>x</i>", "finished_at": "odd"}, {"kind": "sleep", "wake_at": STEP["finished_at"]}]
    errors = [{**ERROR, "worker": "9" * 40}, {**ERROR, "worker": "?"}, {"attempt": 1}]
    html = page(root, JobFactory.create(failed=True, errors=errors, steps=steps))
    assert "&lt;i&gt;" in html
    assert re.search(r"until <time [^>]*>2026-11-21 12:00:00</time>", html)
    assert "Gateway<wbr>Down" in html


def test_a_running_job_that_lost_its_worker_says_so(root: Client) -> None:
    job = JobFactory.create(running=True, worker=GONE)
    for beat in (None, 300, 0):
        if beat is not None:
            Worker.objects.all().delete()
            WorkerFactory.create(id=GONE, host="app-7", pid=12, heartbeat_at=ago(seconds=beat))
        html = page(root, job)
        for each in (html, body(root, url("changelist"))):
            assert ("worker lost, waiting for recovery" in each) is (beat != 0)
        assert ("app-7:12" in html) is (beat is not None)
        assert str(GONE) not in html.replace(f"/worker/{GONE}/", "")


def test_the_page_asks_a_bounded_number_of_times(root: Client, django_assert_max_num_queries: Any) -> None:
    errors = [{**ERROR, "worker": str(GONE + n)} for n in range(20)]
    job = JobFactory.create(failed=True, errors=errors)
    # Eight for the limits of the view and its template, and five for the chart of the task.
    with django_assert_max_num_queries(5 + 8 + 5):
        page(root, job)


def test_what_a_job_has_not_is_neither_shown_nor_costs_a_query(root: Client) -> None:
    plain = JobFactory.create()
    page(root, plain)
    with CaptureQueriesContext(connection) as queries:
        html = page(root, plain)
    assert not [text for text in ("pgqueue-workflow", "workflow.css") if text in html]
    text = " ".join(query["sql"] for query in queries)
    of_workflows = ("parents @>", "conditions are in workflow.py")
    for part in ("pgqueue_batch", "pgqueue_edge", "pgqueue_tally", "receipts_", *of_workflows):
        assert part not in text


def test_the_address_of_a_job_is_absolute_and_works_with_its_alias(root: Client) -> None:
    job = JobFactory.create()
    address = f"http://testserver{url('change', job.pk)}"
    html = page(root, job, "?_changelist_filters=status%3Dfailed")
    assert f'<a href="{address}" data-pgqueue-copy>' in html
    assert str(job.pk) in body(root, url("change", f"default:{job.pk}"))
    assert root.get(url("change", f"other:{job.pk}")).status_code == 302


def test_large_values_are_folded_or_cut_and_a_script_may_copy_them(root: Client) -> None:
    html = page(root, JobFactory.create(args=["x" * 3000], kwargs={"n": ["y" * 150]}))
    assert html.count('<details class="pgqueue-long">') == 1
    assert "3,004 characters" in html
    assert html.count("data-pgqueue-json") == 2
    assert 'data-pgqueue-words="Copy" data-pgqueue-done="Copied"' in html
    html = page(root, JobFactory.create(args=["x" * 30_000]))
    assert "… and 10,008 more characters" in html
    assert len(html) < 60_000


def test_a_long_log_is_read_part_by_part(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MOST_LINES", 5)
    lines = [{**LINE, "message": f"line {number}."} for number in range(12)]
    logs = [{"attempt": 1, "lines": lines}, {"attempt": 2, "lines": lines[:3]}]
    job = JobFactory.create(done=True, logs=logs)
    seen: list[str] = []
    query: str | None = ""
    links = 0
    while query is not None:
        html = page(root, job, query)
        section = html.split('id="log-1"')[1]
        seen = re.findall(r"line (\d+)\.", section) + seen
        links += "Later lines" in section
        earlier = re.search(r'href="(\?log=[^"#]*)#log-1">Earlier', section)
        query = earlier and earlier[1]
    assert seen == [str(number) for number in range(len(lines))]
    assert links == 2
    assert 'id="log-2" open' in html
    for odd in ("x", "1:x", "1:0", f"1:{'9' * 40}", "7:5"):
        assert "pgqueue-logs" in page(root, job, f"?log={odd}")


# The timeline.


def job_with(**values: Any) -> Any:
    """Return a job that is not in the database."""
    job: Any = Job(**{
        "task_path": "shop.tasks.x", "status": "pending", "attempts": 0, "enqueued_at": T0, "run_after": T0,
        "errors": [], "args": [], "kwargs": {}, **values,
    })  # fmt: skip
    job.now = at(100)
    return job


ONCE = {"started_at": at(5), "last_attempted_at": at(5), "attempts": 1, "worker": 7}
LATER = {"run_after": at(30)}
AGAIN = {"started_at": at(5), "last_attempted_at": at(60), "attempts": 2, "worker": 7, "run_after": at(50)}
ERRORS = [failed(1, 5, 9), failed(2, 30, 31), failed(3, 60, 70)]
OVER = {"finished_at": at(70), "duration": 10.0}
THRICE = {**AGAIN, "attempts": 3, "finished_at": at(71), "duration": 10.0, "errors": ERRORS}


@pytest.mark.parametrize(
    ("status", "values", "parts"),
    [
        ("pending", {}, "waited 0 100"),
        ("pending", {"run_after": at(160)}, "later 0 100, ahead 100 160"),
        ("pending", {"run_after": at(40)}, "later 0 40, waited 40 100"),
        ("pending", {"run_after": T0 + timedelta(days=36500)}, "later 0 100"),  # waits for an event
        ("blocked", {}, "blocked 0 100"),
        ("running", ONCE, "waited 0 5, ran 5 100 1"),
        ("done", {**ONCE, "finished_at": at(9), "duration": 4.0}, "waited 0 5, ran 5 9 1"),
        ("done", {**ONCE, "finished_at": at(9), "duration": 4.0, "errors": [{"attempt": 1}]},
         "waited 0 5, ran 5 9 1"),
        ("cancelled", {"finished_at": at(9)}, "waited 0 9"),
        ("cancelled", {**ONCE, **LATER, "finished_at": at(20), "errors": ERRORS[:1]},
         "waited 0 5, failed 5 9 1, backoff 9 20"),
        ("retry", {**ONCE, "run_after": at(130), "errors": ERRORS[:1]},
         "waited 0 5, failed 5 9 1, backoff 9 100, ahead 100 130"),
        ("done", {**AGAIN, **OVER, "errors": ERRORS[:1]},
         "waited 0 5, failed 5 9 1, backoff 9 50, waited 50 60, ran 60 70 2"),
        ("failed", THRICE,
         ("waited 0 5, failed 5 9 1, between 9 30, failed 30 31 2, backoff 31 50, waited 50 60, "
          "failed 60 70 3")),
    ],
)  # fmt: skip
def test_the_parts_of_the_life_of_a_job(status: str, values: dict[str, Any], parts: str) -> None:
    found = [
        f"{part.kind} {(part.start - T0).total_seconds():g} {(part.end - T0).total_seconds():g} "
        f"{part.attempt or ''}".strip()
        for part in parts_of(job_with(status=status, **values))
        if part.end > part.start
    ]
    assert ", ".join(found) == parts


def test_short_parts_can_be_seen_and_all_of_them_fit() -> None:
    errors = [failed(number, number * 1000, number * 1000 + 0.01) for number in range(1, 41)]
    job = job_with(status="retry", attempts=40, errors=errors)
    show: Any = SimpleNamespace(job=job, worker=lambda key: f"worker {key}")
    drawn: Any = timeline(show)
    widths = [float(width) for width in re.findall(r' width="([\d.]+)"', drawn["drawing"])]
    assert len(widths) == len(drawn["table"].rows) == 80
    assert abs(sum(widths) - 1000) < 5
    assert min(widths) > 3
    assert "<title>attempt 2: ran and failed, 10 ms. Down</title>" in drawn["drawing"]
    assert "style" not in drawn["drawing"]
    [row] = [row for row in drawn["table"].rows if ">2</a>" in str(row[1])]
    assert (str(row[0]), *row[3:]) == ("ran and failed", "10 ms", "worker 7", "Down")


# What a project adds.


@pytest.mark.promise("panels-need-permission")
def test_a_task_has_a_panel_of_its_own(root: Client) -> None:
    ended = {"done": True, "result": {"accessToken": "hunter2"}}
    job = JobFactory.create(task_path=SIGN_IN, args=["<b>", "hunter2"], **ended)
    assert f"&lt;b&gt; with {REDACTED}: {REDACTED} (job {job.pk} for root)" in page(root, job)
    odd = JobFactory.create(task_path="../../confirm_action")
    for client, other in ((staff("view_job"), job), (root, JobFactory.create()), (root, odd)):
        assert "pgqueue-panel" not in page(client, other)


@pytest.mark.promise("panels-hide-nothing")
def test_a_panel_that_fails_does_not_hide_the_page(root: Client, caplog: pytest.LogCaptureFixture) -> None:
    job = JobFactory.create(task_path=secret_tasks.many.module_path, args=["a"])
    assert "The panel of this task failed; see the log." in page(root, job)
    assert "TemplateDoesNotExist: no_such_template.html" in caplog.text


@pytest.fixture
def own() -> Iterator[None]:
    before = dict(page_module._declared)
    yield
    page_module._declared.clear()
    page_module._declared.update(before)


@pytest.mark.promise("panels-need-permission")
def test_a_project_declares_links_for_its_tasks(root: Client, own: None) -> None:
    @links_for(secret_tasks.sign_in, "shop.tasks.x")
    def links(job: Job) -> list[tuple[str, str]]:
        return [(f"Account of {job.args[0]}", f"/accounts/{job.args[0]}/")]

    job = JobFactory.create(task_path=SIGN_IN, args=["<b>", "x"])
    assert '<a href="/accounts/&lt;b&gt;/">Account of &lt;b&gt;</a>' in page(root, job)
    assert "Account of" not in page(staff("view_job"), job)
    broken = JobFactory.create(task_path="shop.tasks.x", args=[])
    assert "The links of this task failed" in page(root, broken)


# The unique key.

HOUR = timedelta(hours=1)
#: What differs in the job, whether another one with the key waits, and how long the window still lasts.
KEYED: dict[str, tuple[dict[str, Any], bool, timedelta | None]] = {
    "until it starts": ({}, False, None),
    "until it has finished": ({"unique_scope": "live"}, False, None),
    "for its window": ({}, False, HOUR),
    "its window is over": ({}, False, -HOUR),
    "it is over": ({"done": True}, False, None),
    "it runs, and another one waits": ({"running": True}, True, None),
    "it is over, and another one waits": ({"done": True}, True, None),
}


def test_the_page_shows_the_key_how_long_it_holds_and_who_has_it(root: Client, wording: Any) -> None:
    told = {}
    for number, (name, (columns, has_twin, window)) in enumerate(KEYED.items()):
        key = {**KEY, "unique_key": f"doc-{number}"}
        job = JobFactory.create(id=110 + number, **{**key, **columns})
        if has_twin:
            JobFactory.create(id=120 + number, **key)
        if window:
            until = timezone.now() + window
            UniqueWindow.objects.create(unique_key=f"doc-{number}", job_id=job.pk, until=until)
        [told[name]] = [line for line in shown(page(root, job)).splitlines() if "doc-" in line]
    assert told == wording


# Progress, which a script reads anew.


def reporting(done: float, total: float | None = None, note: str = "", **fields: Any) -> Job:
    job: Job = JobFactory.create(**{"running": True, "marks": 8, **fields})
    JobProgress.objects.create(job=job, done=done, total=total, note=note)
    return job


def live_part(html: str) -> str:
    found = re.search(r'<div id="pgqueue-progress.*?</div>', html, re.DOTALL)
    return found.group() if found else ""


def test_only_a_running_job_has_a_bar_that_is_read_anew(root: Client) -> None:
    waiting = page(root, reporting(1, 2, running=False))
    assert "1 of 2 (50%)" in waiting
    assert live_part(waiting) == live_part(page(root, JobFactory.create(done=True))) == ""
    assert live_part(page(root, JobFactory.create(running=True))).endswith("></div>")
    job = reporting(4500, 10_000)
    html = body(root, url("changelist"), status="running", q=str(job.pk))
    part = live_part(html)
    assert part == live_part(page(root, job))
    assert '<progress class="pgqueue-bar" max="100" value="45" aria-label="Progress"' in part
    assert part.count("4,500 of 10,000 (45%)") == 2, "for eyes, and for screen readers"
    assert f'data-pgqueue-source="{url("progress")}" data-pgqueue-key="{job.pk}"' in part
    assert "django_pgqueue/live.js" in html
    assert "style=" not in part, "a Content-Security-Policy would refuse it"


def test_the_script_reads_running_jobs_in_one_query(root: Client) -> None:
    amounts: list[tuple[float, float | None, str, str]] = [
        (1, 2, "1 of 2 (50%)", "50"), (7, None, "7 done", ""), (0, 0, "0 of 0 (100%)", "100"),
        (12, 10, "12 of 10 (100%)", "100"), (999, 1000, "999 of 1,000 (99%)", "99"),
        (0.5, 2, "0.50 of 2 (25%)", "25"),
    ]  # fmt: skip
    jobs = [reporting(done, total) for done, total, _words, _value in amounts]
    over, silent = JobFactory.create(done=True), JobFactory.create(running=True)
    keys = [*(job.pk for job in jobs), over.pk, silent.pk]
    with CaptureQueriesContext(connection) as queries:
        answer = root.get(url("progress"), {"keys": ",".join(map(str, [*keys, "x", "²", 10**30]))})
    assert sum("pgqueue_job" in query["sql"] for query in queries) == 1
    assert "no-store" in answer.headers["Cache-Control"]
    part = r'<div id="pgqueue-progress-(\d+)"( data-pgqueue-source)?(.*?)</div>'
    found = re.findall(part, answer.content.decode())
    assert [int(key) for key, _source, _words in found] == keys
    assert [bool(source) for _key, source, _words in found] == [key != over.pk for key in keys]
    for (_done, _total, text, value), (_key, _source, told) in zip(amounts, found, strict=False):
        assert text in told
        assert re.findall(r'value="(\d+)"', told) == ([value] if value else [])


# The payload, and the job in the admin of its payload.


def payload_on(client: Client, key: int) -> str:
    html = body(client, url("change", key))
    return html.split('id="pgqueue-payload"')[1].split("</section>")[0] if "pgqueue-payload" in html else ""


def page_of(row: Receipt | None = None) -> str:
    if row is None:
        return reverse("admin:receipts_receipt_changelist")
    return reverse("admin:receipts_receipt_change", args=[row.pk])


def test_a_payload_links_to_where_its_model_is_shown(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = receipt()
    monkeypatch.setattr(Receipt, "get_absolute_url", lambda row: f"/receipts/{row.pk}/", raising=False)
    assert f'<a href="/receipts/{job.pk}/">Receipt</a>' in payload_on(root, job.pk)
    monkeypatch.setattr(Receipt, "get_absolute_url", lambda row: 1 / 0)
    assert "&lt;b&gt;@c.d" in payload_on(root, job.pk)


def test_a_row_that_is_gone_or_whose_model_is_gone(root: Client) -> None:
    job = receipt()
    Receipt.objects.all().delete()
    assert "The row does not exist." in payload_on(root, job.pk)
    DeclaredTask.objects.filter(model="receipts.Charge").update(model="elsewhere.Charge")
    charge = Charge.objects.create(order=Order.objects.create(), email="c@b.c").job
    assert payload_on(root, charge.pk) == ""


def test_a_model_without_an_admin_needs_its_own_permission() -> None:
    job, charge = receipt(), Charge.objects.create(order=Order.objects.get(), email="c@b.c")
    client = staff("view_job", "view_arguments_job")
    User.objects.get().user_permissions.add(Permission.objects.get(codename="view_charge"))
    assert "c@b.c" in payload_on(client, charge.pk)
    assert "href" not in payload_on(client, charge.pk)
    assert payload_on(client, job.pk) == ""


def test_a_row_shows_its_job_with_a_link_for_those_who_may_view_jobs(root: Client) -> None:
    cancelled = receipt()
    cancel(cancelled)
    waiting, gone = (Receipt.objects.create(order=Order.objects.get(), email=f"{n}@b.c") for n in "wg")
    sql("DELETE FROM pgqueue_job WHERE id = %s", gone.pk)
    sql("UPDATE pgqueue_job_live SET status = 'blocked', waiting_reason = 'paused: <i>'")
    rows = body(root, page_of())
    for text in ("pgqueue-cancelled", "pgqueue-blocked", "paused: &lt;i&gt;", "no longer kept", "g@b.c"):
        assert text in rows
    link = f'<a href="{url("change", waiting.pk)}">{waiting.pk}</a>'
    assert link in rows
    assert url("change", gone.pk) not in rows
    shown = body(root, page_of(waiting))
    assert all(text in shown for text in ("pgqueue-blocked", url("change", waiting.pk)))
    assert "job_status" not in body(root, reverse("admin:receipts_receipt_add"))
    client = staff()
    may = User.objects.get(username__startswith="staff").user_permissions
    may.set(Permission.objects.filter(codename="view_receipt"))
    seen = body(client, page_of())
    assert "pgqueue-blocked" in seen
    assert link not in seen


def test_a_list_of_payloads_reads_jobs_at_once(root: Client, django_assert_max_num_queries: Any) -> None:
    order = Order.objects.create()
    Receipt.objects.bulk_create([Receipt(order=order, email="x@b.c") for _ in range(20)])
    with django_assert_max_num_queries(7):
        body(root, page_of())


def test_a_done_action_on_many_jobs_is_not_offered_again(root: Client) -> None:
    done, failed = (
        JobFactory.create(task_path=bulk.run.module_path, **{s: True}) for s in ("done", "failed")
    )
    assert [">Retry<" in page(root, job) for job in (done, failed)] == [False, True]


# Why it waits, with links that its reader may follow.


def reason(client: Client, job: Job) -> str:
    """Return what the page says of why the job waits."""
    html = body(client, url("change", job.pk))
    found = re.search(r'field-why.*?<div class="readonly">(.*?)</div>', html, re.DOTALL)
    return re.sub(r"\bfor \d s\b", "for <age>", words(found[1])) if found else ""


def paused() -> Job:
    pause(queue="mail", author="<anna>", reason="<b>the bank</b>")
    return JobFactory.create(queue_name="mail")


def in_line(key: str) -> Job:
    JobFactory.create(id=101, running=True, limit_key=key)
    return JobFactory.create(limit_key=key, wait_position=1)


def limited() -> Job:
    set_limit(name="send", concurrency=1)
    return in_line("send/a b")


def behind() -> Job:
    WorkerFactory.create()
    JobFactory.create(run_after=ago(hours=1))
    return JobFactory.create()


#: How to make a job, and the permission for the links.
CASES: dict[str, Callable[[], Job]] = {
    "view_pause": paused, "view_limit": limited, "view_job": behind,
    "add_limit": lambda: in_line("send"),
    "view_jobbatch": lambda: JobFactory.create(
        parents=[BatchFactory.create(id=201, is_open=True, name="<import>")]
    ),
    "view_worker": lambda: JobFactory.create(queue_name="mail"),
}  # fmt: skip


@pytest.mark.parametrize("permission", CASES)
def test_the_reason_has_links_to_what_helps(permission: str, wording: Any) -> None:
    job = CASES[permission]()
    assert [reason(staff(*each), job) for each in ({"view_job", permission}, {"view_job"})] == wording


def test_a_locked_row_leads_to_the_database(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFactory.create()
    locked = Reason("locked", {"pid": 5, "application": "<psql>"}, job.pk, "default")
    monkeypatch.setattr(fields, "why", lambda job: locked)
    told = reason(root, job)
    assert "process 5, <psql>" in told
    assert re.findall("</admin(.*?)>", told) == ["/django_pgqueue/jobstat/database/"]


def test_only_waiting_jobs_ask(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "why", lambda job: pytest.fail("asked"))
    for state in ("running", "done", "failed"):
        reason(root, JobFactory.create(**{state: True}))


# Whatever JSON SQL has stored.


LEVELS = 3_000
POISON = {
    "digits": ("1e5000", "a number with 5,001 digits"),
    "lists": ("[" * LEVELS + "]" * LEVELS, TOO_DEEP.strip("<>")),
    "objects": ('{"a":' * LEVELS + "1" + "}" * LEVELS, TOO_DEEP.strip("<>")),
    "not a number": ("1e400", "1000000"),
    "keys": ('{"": {"": 1}, "__proto__": {"a": 1, "a": 2}}', "__proto__"),
}


#: The columns, and the fields of the page that show them.
SHOWN_AS = {"args": "arguments", "kwargs": "keyword_arguments", "metadata": "noted", "result": "outcome"}


@pytest.mark.parametrize("name", POISON)
def test_a_job_is_shown_with_whatever_sql_has_stored(root: Client, name: str) -> None:
    value, shown = POISON[name]
    pk = sql("SELECT pgqueue_enqueue('tests.app.tasks.noop')")
    for column in SHOWN_AS:
        whole = {"args": f"[1, {value}]", "result": value}.get(column, f'{{"key": {value}}}')
        sql(f"UPDATE pgqueue_job_live SET {column} = %s::jsonb WHERE id = %s", whole, pk)
    _first, *rest = re.split(r'class="[^"]*\bfield-(\w+)', body(root, url("change", pk)))
    found = dict(zip(rest[::2], rest[1::2], strict=True))
    assert [column for column, field in SHOWN_AS.items() if shown not in found[field]] == []
    assert root.get(url("clone", pk)).status_code == 200
    for column in SHOWN_AS:
        getattr(Job.objects.get(pk=pk), column)
    assert listed(root) == [pk]
    assert cancel(pk) == 1
