"""The page of a job: its timeline, panel and links, errors and long logs, and a copy of it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.test import Client
from django.utils import timezone

from django_pgqueue import cancel, enqueue
from django_pgqueue.admin import links_for
from django_pgqueue.admin.job_page import page as page_module
from django_pgqueue.admin.job_page.page import MOST_LINES
from django_pgqueue.admin.job_page.timeline import parts_of, timeline
from django_pgqueue.models import Job
from django_pgqueue.redaction import REDACTED
from tests.app import secret_tasks, unique_tasks
from tests.receipts.models import Order, Receipt
from tests.support.factories import ERROR, JobFactory

from .helpers import body, staff, url

T0 = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SIGN_IN = secret_tasks.sign_in.module_path


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def failed(number: int, start: float, end: float) -> dict[str, Any]:
    times = {"started_at": at(start).isoformat(), "finished_at": at(end).isoformat()}
    return {**ERROR, "class": "Down", "message": "", "attempt": number, "worker": "7", **times}


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


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({}, ["waited 0 100"]),
        ({"run_after": at(160)}, ["later 0 100", "ahead 100 160"]),
        ({"run_after": at(40)}, ["later 0 40", "waited 40 100"]),
        ({"run_after": T0 + timedelta(days=36500)}, ["later 0 100"]),  # waits for an event
        ({"status": "blocked"}, ["blocked 0 100"]),
        ({"status": "running", **ONCE}, ["waited 0 5", "ran 5 100 1"]),
        ({"status": "done", **ONCE, "finished_at": at(9), "duration": 4.0}, ["waited 0 5", "ran 5 9 1"]),
        ({"status": "cancelled", "finished_at": at(9)}, ["waited 0 9"]),
        (
            {"status": "cancelled", **ONCE, **LATER, "finished_at": at(20), "errors": [failed(1, 5, 9)]},
            ["waited 0 5", "failed 5 9 1", "backoff 9 20"],
        ),
        (
            {"status": "retry", **ONCE, "run_after": at(130), "errors": [failed(1, 5, 9)]},
            ["waited 0 5", "failed 5 9 1", "backoff 9 100", "ahead 100 130"],
        ),
        (
            {"status": "done", **AGAIN, "finished_at": at(70), "duration": 10.0, "errors": [failed(1, 5, 9)]},
            ["waited 0 5", "failed 5 9 1", "backoff 9 50", "waited 50 60", "ran 60 70 2"],
        ),
        (
            {
                "status": "failed", **AGAIN, "attempts": 3, "finished_at": at(71), "duration": 10.0,
                "errors": [failed(1, 5, 9), failed(2, 30, 31), failed(3, 60, 70)],
            },
            ["waited 0 5", "failed 5 9 1", "between 9 30", "failed 30 31 2", "backoff 31 50", "waited 50 60",
             "failed 60 70 3"],
        ),
        (
            {"status": "done", **ONCE, "finished_at": at(9), "duration": 4.0, "errors": [{"attempt": 1}]},
            ["waited 0 5", "ran 5 9 1"],
        ),
    ],
)  # fmt: skip
def test_the_parts_of_the_life_of_a_job(values: dict[str, Any], parts: list[str]) -> None:
    found = [
        f"{part.kind} {(part.start - T0).total_seconds():g} {(part.end - T0).total_seconds():g} "
        f"{part.attempt or ''}".strip()
        for part in parts_of(job_with(**values))
        if part.end > part.start
    ]
    assert found == parts


def test_short_parts_can_be_seen_and_all_of_them_fit() -> None:
    errors = [failed(number, number * 1000, number * 1000 + 0.01) for number in range(1, 41)]
    job = job_with(status="retry", attempts=40, errors=errors)
    show: Any = SimpleNamespace(job=job, worker=lambda key: f"worker {key}")
    shown: Any = timeline(show)
    widths = [float(width) for width in re.findall(r' width="([\d.]+)"', shown["drawing"])]
    assert len(widths) == len(shown["table"].rows) == 80
    assert abs(sum(widths) - 1000) < 5
    assert min(widths) > 3
    assert "<title>attempt 2: ran and failed, 10 ms. Down</title>" in shown["drawing"]
    assert "style" not in shown["drawing"]
    [row] = [row for row in shown["table"].rows if ">2</a>" in str(row[1])]
    assert (str(row[0]), *row[3:]) == ("ran and failed", "10 ms", "worker 7", "Down")


@pytest.mark.django_db
def test_the_page_has_the_drawing_and_the_same_as_a_table(root: Client) -> None:
    error = failed(1, 5, 9)
    page = body(root, url("change", JobFactory.create(retrying=True, enqueued_at=T0, errors=[error]).pk))
    timeline = page.split('class="module pgqueue-timeline"')[1].split("</section>")[0]
    assert timeline.count("<rect") - timeline.count("<li>") == timeline.count('<th scope="row">') == 4
    assert '<a href="#attempt-1">1</a>' in timeline
    assert '<details id="attempt-1" open>' in page


@pytest.mark.django_db
def test_errors_lead_to_each_other(root: Client) -> None:
    errors = [failed(number, number, number + 1) for number in (1, 2, 5)]
    library = '  File "/v/lib/python3.13/site-packages/y.py", line 2, in y'
    errors[0]["traceback"] = (
        f'Traceback:\n  File "/srv/x.py", line 1, in x\n    a()\n{library}\n    b()\nDown'
    )
    page = body(root, url("change", JobFactory.create(failed=True, errors=errors, attempts=5).pk))
    section = page.split('id="pgqueue-errors"')[1]
    assert re.findall(r'id="attempt-(\d)', section) == ["5", "2", "1"]
    assert re.findall(r'href="#attempt-(\d)', section) == ["2", "1", "5", "2"]
    frames, whole = re.findall(r"<pre[^>]*>([^<]*)</pre>", section.split('id="attempt-1"')[1])
    assert "site-packages" not in frames
    assert html.unescape(whole) == errors[0]["traceback"]


@pytest.mark.django_db
def test_a_long_log_is_read_part_by_part(root: Client) -> None:
    lines = [
        {"at": T0.isoformat(), "level": "INFO", "logger": "x", "message": f"line {number}."}
        for number in range(2 * MOST_LINES + 10)
    ]
    job = JobFactory.create(
        done=True, logs=[{"attempt": 1, "lines": lines}, {"attempt": 2, "lines": lines[:3]}]
    )
    seen: list[str] = []
    address, links = url("change", job.pk), 0
    while address:
        section = body(root, address).split('id="log-1"')[1]
        seen = re.findall(r"line (\d+)\.", section) + seen
        earlier = re.search(r'href="(\?log=[^"#]*)#log-1">Earlier', section)
        links += "Later lines" in section
        address = url("change", job.pk) + earlier[1] if earlier else ""
    assert seen == [str(number) for number in range(len(lines))]
    assert links == 2
    assert 'id="log-2" open' in body(root, url("change", job.pk))
    for odd in ("x", "1:x", "1:0", f"1:{'9' * 40}", "7:5"):
        assert "pgqueue-logs" in body(root, url("change", job.pk) + f"?log={odd}")


@pytest.mark.django_db
@pytest.mark.promise("panels-need-permission")
def test_a_task_has_a_panel_of_its_own(root: Client) -> None:
    done = {"done": True, "result": {"accessToken": "hunter2"}}
    job = JobFactory.create(task_path=SIGN_IN, args=["<b>", "hunter2"], **done)
    text = f"&lt;b&gt; with {REDACTED}: {REDACTED} (job {job.pk} for root)"
    assert text in body(root, url("change", job.pk))
    assert "pgqueue-panel" not in body(staff("view_job"), url("change", job.pk))
    assert "pgqueue-panel" not in body(root, url("change", JobFactory.create().pk))
    odd = JobFactory.create(task_path="../../confirm_action")
    assert "pgqueue-panel" not in body(root, url("change", odd.pk))


@pytest.mark.django_db
@pytest.mark.promise("panels-hide-nothing")
def test_a_panel_that_fails_does_not_hide_the_page(root: Client, caplog: pytest.LogCaptureFixture) -> None:
    page = body(
        root, url("change", JobFactory.create(task_path=secret_tasks.many.module_path, args=["a"]).pk)
    )
    assert "The panel of this task failed; see the log." in page
    assert "TemplateDoesNotExist: no_such_template.html" in caplog.text


@pytest.fixture
def own() -> Iterator[None]:
    before = dict(page_module._declared)
    yield
    page_module._declared.clear()
    page_module._declared.update(before)


@pytest.mark.django_db
@pytest.mark.promise("panels-need-permission")
def test_a_project_declares_links_for_its_tasks(root: Client, own: None) -> None:
    @links_for(secret_tasks.sign_in, "shop.tasks.x")
    def links(job: Job) -> list[tuple[str, str]]:
        return [(f"Account of {job.args[0]}", f"/accounts/{job.args[0]}/")]

    job = JobFactory.create(task_path=SIGN_IN, args=["<b>", "x"])
    assert '<a href="/accounts/&lt;b&gt;/">Account of &lt;b&gt;</a>' in body(root, url("change", job.pk))
    assert "Account of" not in body(staff("view_job"), url("change", job.pk))
    broken = JobFactory.create(task_path="shop.tasks.x", args=[])
    assert "The links of this task failed" in body(root, url("change", broken.pk))


@pytest.mark.django_db
def test_a_payload_has_a_link_to_where_its_model_is_shown(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Receipt.objects.create(order=Order.objects.create(), email="a@b.c")
    address = url("change", row.pk)
    assert "/receipts/" not in body(root, address).split("pgqueue-payload")[1].split("</section>")[0].replace(
        "/admin/receipts/", ""
    )
    monkeypatch.setattr(Receipt, "get_absolute_url", lambda row: f"/receipts/{row.pk}/", raising=False)
    page = body(root, address)
    assert f'<a href="/receipts/{row.pk}/">Receipt</a>' in page
    assert "field-arguments" not in page  # a payload is the call
    monkeypatch.setattr(Receipt, "get_absolute_url", lambda row: 1 / 0)
    assert "a@b.c" in body(root, address)


@pytest.mark.django_db
def test_the_address_of_a_job_is_absolute_and_works_with_its_alias(root: Client) -> None:
    job = JobFactory.create()
    page = body(root, url("change", job.pk) + "?_changelist_filters=status%3Dfailed")
    assert f'<a href="http://testserver{url("change", job.pk)}" data-pgqueue-copy>' in page
    assert str(job.pk) in body(root, url("change", f"default:{job.pk}"))
    assert root.get(url("change", f"other:{job.pk}")).status_code == 302


CLONE = ("view_job", "view_arguments_job", "clone_job")


def clone(client: Client, job: Job, **values: Any) -> Any:
    """Fill in the form as it is shown, with some other values."""
    form = client.get(url("clone", job.pk)).context["form"]
    given = {name: form[name].value() for name in form.fields}
    texts = {name: "" if value is None else str(value) for name, value in {**given, **values}.items()}
    return client.post(url("clone", job.pk), texts)


@pytest.mark.django_db
def test_a_copy_has_other_values_and_those_that_are_not_shown() -> None:
    client = staff(*CLONE)
    job = JobFactory.create(
        task_path=SIGN_IN, args=["ann", "hunter2"], kwargs={"api_key": "k-1"}, failed=True, priority=3,
        queue_name="mail", metadata={"request": 7},
    )  # fmt: skip
    page = body(client, url("clone", job.pk))
    assert "hunter2" not in page
    assert "k-1" not in page
    soon = timezone.localtime() + timedelta(hours=1)
    response = clone(client, job, args=json.dumps(["bob", REDACTED]), run_after=f"{soon:%Y-%m-%dT%H:%M:%S}")
    made = Job.objects.exclude(pk=job.pk).get()
    assert response.url == url("change", made.pk)
    assert (made.args, made.kwargs) == (["bob", "hunter2"], {"api_key": "k-1"})
    assert (made.task_path, made.queue_name, made.priority) == (SIGN_IN, "mail", 3)
    assert (made.metadata, made.status, made.max_attempts) == ({"request": 7}, "pending", 1)
    assert abs(made.run_after - soon) < timedelta(seconds=2)
    assert {(entry.object_id, str(entry)) for entry in LogEntry.objects.all()} == {
        (str(job.pk), f"Changed “{job}” — Enqueued again as job {made.pk}."),
        (str(made.pk), f"Added “{made}”."),
    }


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"args": '["ann"]'}, "missing a required argument: 'password'"),
        ({"args": "[", "kwargs": "{}"}, "Enter a valid JSON."),
        ({"args": '{"user": "ann"}'}, "Enter a JSON list."),
        ({"kwargs": "[]"}, "Enter a JSON object."),
        ({"kwargs": '{"more": 1}'}, "got an unexpected keyword argument 'more'"),
        ({"kwargs": '{"api_key": "a\\u0000b"}'}, "contains a NUL character"),
        ({"args": f'["ann", "x", "{REDACTED}"]'}, "Replace each “[redacted]” by a value"),
        ({"priority": "101"}, "less than or equal to 100"),
        ({"queue_name": "no queue!"}, "queue"),
    ],
)
def test_a_copy_is_checked_as_an_enqueue_is(root: Client, values: dict[str, str], words: str) -> None:
    job = JobFactory.create(task_path=SIGN_IN, args=["ann", "hunter2"])
    response = clone(root, job, **values)
    assert response.status_code == 200
    [errors] = re.findall(r'<ul class="errorlist[^>]*>.*?</ul>', response.content.decode())[:1]
    assert words in html.unescape(errors)
    assert Job.objects.count() == 1
    assert LogEntry.objects.count() == 0


@pytest.mark.django_db
def test_a_task_that_is_gone_has_no_copy(root: Client) -> None:
    job = JobFactory.create(task_path="gone.tasks.x", args=[])
    response = clone(root, job)
    assert "no task &#x27;gone.tasks.x&#x27;" in response.content.decode()


@pytest.mark.django_db
def test_a_copy_with_a_unique_key_that_is_taken_is_the_other_job(root: Client) -> None:
    job = enqueue(unique_tasks.index, 5)
    response = clone(root, job)
    assert (Job.objects.count(), response.url) == (1, url("change", job.pk))
    assert "has the unique key of this call" in body(root, response.url)
    once = enqueue(unique_tasks.once, "a")
    assert (
        f"Job {once.pk} has the unique key"
        in html.unescape(clone(root, once).content.decode()).split("errorlist")[1]
    )


@pytest.mark.django_db
def test_a_copy_that_replaces_the_arguments_of_a_waiting_job_is_told_as_such(root: Client) -> None:
    over = enqueue(unique_tasks.render, 5, "old")
    cancel(over)
    waiting = enqueue(unique_tasks.render, 5, "new")
    response = clone(root, over, args='[5, "old"]')
    assert response.url == url("change", waiting.pk)
    assert f"job {waiting.pk}, which has the unique key" in body(root, response.url)
    assert Job.objects.get(pk=waiting.pk).args == [5, "old"]
    [entry] = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == (str(waiting.pk), CHANGE)
    assert entry.get_change_message() == f"Got the values of a copy of job {over.pk}."


@pytest.mark.django_db
@pytest.mark.parametrize("missing", CLONE)
def test_who_may_copy(missing: str) -> None:
    job = JobFactory.create()
    client = staff(*(name for name in CLONE if name != missing))
    assert client.get(url("clone", job.pk)).status_code == 403
    assert client.post(url("clone", job.pk), {"args": "[1, 2]"}).status_code == 403
    if missing != "view_job":
        assert "/clone/" not in body(client, url("change", job.pk))
    assert Job.objects.count() == 1


@pytest.mark.django_db
def test_a_payload_is_copied_by_adding_a_row(root: Client) -> None:
    row = Receipt.objects.create(order=Order.objects.create(), email="a@b.c")
    assert "/clone/" not in body(root, url("change", row.pk))
    assert root.get(url("clone", row.pk)).headers["Location"] == url("change", row.pk)
    assert root.get(url("clone", 0)).status_code == 302


@pytest.mark.django_db
def test_large_values_are_folded_and_a_script_may_copy_them(root: Client) -> None:
    job = JobFactory.create(args=["x" * 3000], kwargs={"n": ["y" * 150]})
    page = body(root, url("change", job.pk))
    assert page.count('<details class="pgqueue-long">') == 1
    assert "3,004 characters" in page
    assert page.count("data-pgqueue-json") == 2
    assert 'data-pgqueue-words="Copy" data-pgqueue-done="Copied"' in page
