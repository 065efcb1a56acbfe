"""Who may see and do what: every URL of every page, as each kind of user.

The URLs are read from the admin classes, so that a new page is tested, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from html import unescape
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.db.models import Model
from django.test import Client
from django.urls import resolve
from django.utils import timezone

from django_pgqueue import pause, set_limit
from django_pgqueue.admin import BatchAdmin, JobAdmin, ScheduleAdmin, WorkerAdmin
from django_pgqueue.models import Job, JobProgress, Schedule
from tests.support.factories import (
    BatchFactory,
    JobFactory,
    JobStatFactory,
    QueueFactory,
    ScheduleFactory,
    WorkerFactory,
)
from tests.support.figures import failure
from tests.support.jobs import value

from .helpers import ADMINS, STATES, body, offered, pages_of, staff, stored, url

pytestmark = pytest.mark.django_db

OURS = Permission.objects.filter(content_type__app_label="django_pgqueue")
#: The permissions that a page needs, if that is not the one to view rows of its kind. Those of a button are
#: also those of the action of the list. None: nobody has the page.
NEEDS: dict[str, str | None] = {
    **{f"job_{name}": f"view_job {name}_job" for name in ("retry", "run_now", "edit", "extend", "cancel")},
    "job_clone": "view_job view_arguments_job clone_job",
    "job_failure_mute": "view_job mute_failuregroup",
    "jobbatch_workflow": "view_jobbatch view_job",
    **{f"jobbatch_{name}": f"view_jobbatch {name}_job" for name in ("cancel", "retry")},
    **{f"worker_{name}": "view_worker drain_worker" for name in ("replace", "stop")},
    "pause_resume": "view_pause delete_pause",
    **{f"schedule_{name}": "view_schedule pause_schedule" for name in ("pause", "resume")},
    "schedule_enqueue": "view_schedule enqueue_schedule",
    "schedule_restore": "change_schedule",
    **{f"{kind}_add": f"add_{kind}" for kind in ("queue", "pause", "schedule", "limit")},
    **{f"{kind}_delete": f"delete_{kind}" for kind in ("queue", "schedule", "limit")},
    **{f"{kind}_add": None for kind in ("job", "jobbatch", "worker")},
    **{f"{kind}_delete": None for kind in ("job", "jobbatch", "worker", "pause")},
}
#: The rows that have a button, if that of the fixture has not.
FITTING: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("job_run_now", "job_edit", "job_cancel"), lambda: JobFactory.create(scheduled=True)),
    "job_extend": lambda: JobFactory.create(running=True, deadline=timezone.now() + timedelta(hours=1)),
    "schedule_resume": lambda: ScheduleFactory.create(paused_at=timezone.now()),
    "schedule_restore": lambda: ScheduleFactory.create(declared={"cron": "1 * * * *"}, overridden=["cron"]),
}
#: What forms and buttons send, all at once.
SENT = {
    "action": "cancel_jobs", "select_across": "1", "index": "0", "confirmed": "1", "post": "yes",
    "names": '["nightly"]', "_save": "1", "name": "mail", "kind": "queue", "cron": "* * * * *",
    "task_path": "tests.app.tasks.noop", "reason": "a test", "concurrency": "1", "on_full": "wait",
    "priority": "9", "status": "failed", "backoff_base": "5",
}  # fmt: skip
MOST = 30  # statements of a page: two read the permissions, and a part that is too slow takes one more
#: The addresses to which a page leads, without those of Django itself.
LINKS = r'(?:href|action)="(/admin/(?!logout|password|jsi18n)[^"?]+)'
ARGUMENTS: dict[str, Any] = {"args": ["zanzibar"], "kwargs": {"to": "zanzibar"}}


@pytest.fixture(autouse=True)
def rows() -> dict[str, Model]:
    """One row of each kind on which there is something to do."""
    batch = BatchFactory.create()
    failure(job_id=7)
    made: list[Any] = [
        JobFactory.create(failed=True, batch_id=batch.pk, **ARGUMENTS), batch,
        QueueFactory.create(name="mail"), pause(queue="mail"),
        ScheduleFactory.create(name="nightly", overridden=["args"], declared=ARGUMENTS, **ARGUMENTS),
        set_limit(name="acme", concurrency=1), WorkerFactory.create(), JobStatFactory.create(),
    ]  # fmt: skip
    return {str(row._meta.model_name): row for row in made}


def urls(kind: str, rows: dict[str, Any]) -> dict[str, str]:
    """Return the URLs of an admin class for its row, by their names."""
    pk = quote(rows[kind].pk)
    return dict(pages_of(ADMINS[kind], object_id=pk, fingerprint="f", task_path="tests.app.tasks.add"))


def actions(kind: str) -> list[str]:
    return [name for name in ADMINS[kind].actions or () if isinstance(name, str)]


def sent(rows: dict[str, Model], kind: str) -> dict[str, Any]:
    """Return the values of forms, for the actions of this list and its row."""
    return {**SENT, "action": (*actions(kind), "")[0], "_selected_action": [rows[kind].pk]}


@pytest.mark.parametrize("kind", ADMINS)
@pytest.mark.promise("no-forbidden-button", "nothing-until-granted", "get-changes-nothing")
def test_each_page_button_and_action_needs_only_its_permissions(
    kind: str, rows: dict[str, Any], list_at_the_side: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And who may view only this kind finds no link and no button to anything else, and changes nothing."""
    monkeypatch.setattr(AdminSite, "enable_nav_sidebar", False)  # the same list is on the first page
    anonymous, client, data = Client(), cache(staff), sent(rows, kind)
    page_of = cache(lambda user, key: body(user, url("change", key, model=kind)))
    made = {make: make() for name, make in FITTING.items() if name.startswith(f"{kind}_")}
    listed = {name.rpartition("_")[0]: name for name in actions(kind)}
    viewer, before = client(f"view_{kind}"), stored()
    pages = {"/admin/": body(viewer, "/admin/")}
    for name in urls(kind, rows):
        button = name.removeprefix(f"{kind}_")
        row = made[FITTING[name]] if name in FITTING else rows[kind]
        address = urls(kind, {kind: row})[name]
        needed = NEEDS.get(name, f"view_{kind}")
        assert anonymous.get(address)["Location"].startswith("/admin/login/"), name
        assert not getattr(resolve(address).func, "csrf_exempt", False), name
        if needed is None:
            nobody = client(*OURS.values_list("codename", flat=True))
            assert nobody.get(address).status_code == nobody.post(address, data).status_code == 403, name
            continue

        def offers(user: Client, button: str = button, row: Any = row, address: str = address) -> list[bool]:
            """Return whether the page of the row has the button, and whether the list has the action."""
            found = [address in page_of(user, row.pk)]
            return [*found, *([listed[button] in offered(user, kind)] if button in listed else [])]

        posts = button in getattr(ADMINS[kind], "row_actions", ())
        is_button = posts or button == "clone"
        for missing in needed.split():
            without = client(*(each for each in needed.split() if each != missing))
            assert posts or without.get(address).status_code in {403, 405}, (name, missing)
            assert without.post(address, data).status_code == 403, (name, missing)
            if is_button and f"view_{kind}" in needed and missing != f"view_{kind}":
                assert not any(offers(without)), (name, missing)
        allowed = client(*needed.split())
        assert not is_button or all(offers(allowed)), name
        response = allowed.get(address)
        assert not posts or response.status_code == 405, name
        if response.status_code not in {200, 302}:
            with transaction.atomic():
                assert allowed.post(address, data).status_code in {200, 302}, name
                transaction.set_rollback(True)
        elif allowed is viewer:
            assert button == "history" or viewer.post(address, data).status_code < 500, name
            if response["Content-Type"].startswith("text/html"):
                pages[address] = response.content.decode()
    found = ((unescape(link), page) for page, html in pages.items() for link in re.findall(LINKS, html))
    links = dict(found)
    others = {resolve(link).view_name: link for link in links.keys() - pages.keys()}  # one link to each page
    assert any(f"/{kind}/" in link for link in links)
    assert [page for page, html in pages.items() if "pgqueue-do-" in html] == [], "has a button"
    closed = {link for link in others.values() if viewer.get(link).status_code not in {200, 302}}
    assert {link: links[link] for link in closed} == {}
    assert stored() == before


@pytest.mark.promise("get-changes-nothing", "no-forbidden-button")
def test_a_post_without_a_token_changes_nothing(rows: dict[str, Model]) -> None:
    """Whatever page it is for: none is exempt, see above."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    lists = {url("changelist", model=kind): sent(rows, kind) for kind in ADMINS}
    for address, data in {**lists, url("retry", rows["job"].pk): {}}.items():
        assert client.post(address, data).status_code == 403


@pytest.mark.promise("get-changes-nothing", "arguments-need-permission")
def test_a_get_changes_nothing_sends_few_limited_statements_and_shows_no_arguments(
    rows: dict[str, Any], root: Client, settings: Any
) -> None:
    """And it needs no time zones: all times are naive here. The user has all other permissions. The doctor
    examines everything. That more rows cost no more statements: `test_long_history`.
    """
    unlimited, sent_by = set(), Counter[str]()

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        raw = context["connection"].connection
        if "pgqueue" in sql and "set_config" not in sql and value(raw, "SHOW statement_timeout") == "0":
            unlimited.add(sql)
        sent_by[address] += 1
        return execute(sql, params, many, context)

    for state in STATES.values():
        JobFactory.create(**ARGUMENTS, **state, **({"result": ["zanzibar"]} if "done" in state else {}))
    ScheduleFactory.create(name="paused", paused_at=timezone.now())
    Schedule.objects.update(next_run_at=timezone.now() + timedelta(minutes=5))
    settings.USE_TZ = False
    blind = staff(*OURS.exclude(codename="view_arguments_job").values_list("codename", flat=True))
    jobs = [url("change", row.pk) for row in Job.objects.exclude(pk=rows["job"].pk)]
    more = {"job": jobs, "schedule": [url("change", "paused", model="schedule")]}
    before = stored()
    for kind in ADMINS:
        for name, address in [*urls(kind, rows).items(), *(("", each) for each in more.get(kind, ()))]:
            # What forms send would filter a list, so that is read once more.
            data = {} if name.endswith("list") else sent(rows, kind)
            with connection.execute_wrapper(look):
                shown = (root if name == "job_clone" else blind).get(address, data)
            assert shown.status_code < 500, name
            assert name == "job_clone" or "zanzibar" not in shown.content.decode(), name
            assert data or blind.get(address, sent(rows, kind)).status_code < 500, name
    assert all("zanzibar" in body(root, address) for address in jobs)
    assert (unlimited, sent_by[url("overview")] > 10) == (set(), True)
    assert {each: count for each, count in sent_by.items() if count > MOST and "doctor" not in each} == {}
    assert stored() == before
    for kind in ADMINS:
        for action in actions(kind):
            data = {"action": action, "_selected_action": [rows[kind].pk], "index": 0}
            assert root.post(url("changelist", model=kind), data).status_code in (200, 302), action


# --- A project may replace the methods that decide who may do what


#: The rows, and for each of their buttons the class that is asked, and the permission.
BUTTONS: list[tuple[str, dict[str, Any], list[tuple[str, type, str]]]] = [
    ("job", {"failed": True, "task_path": "tests.app.tasks.noop", "error_fingerprint": "abc"},
     [("retry", JobAdmin, "retry"), ("clone", JobAdmin, "view_arguments"),
      ("failure_mute", JobAdmin, "mute")]),
    ("job", {"done": True}, [("retry", JobAdmin, "rerun_done")]),
    ("job", {"scheduled": True}, [(name, JobAdmin, name) for name in ("run_now", "edit", "cancel")]),
    # That of jobs decides, unless the class of batches has its own.
    ("jobbatch", {}, [(name, JobAdmin, name) for name in ("cancel", "retry")]),
    ("jobbatch", {}, [(name, BatchAdmin, name) for name in ("cancel", "retry")]),
    ("schedule", {"name": "hourly"},
     [("pause", ScheduleAdmin, "pause"), ("enqueue", ScheduleAdmin, "enqueue"),
      ("restore", ScheduleAdmin, "change")]),
]  # fmt: skip
FACTORIES: dict[str, Any] = {
    "job": JobFactory, "jobbatch": BatchFactory, "schedule": ScheduleFactory, "worker": WorkerFactory,
}  # fmt: skip


@pytest.fixture
def one_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may view the rows whose queue, name or host is "hidden"."""

    def may_view(self: Any, request: Any, obj: Any = None) -> bool:
        return "hidden" not in [getattr(obj, name, "") for name in ("queue_name", "name", "host")]

    for admin in (JobAdmin, BatchAdmin, ScheduleAdmin, WorkerAdmin):
        monkeypatch.setattr(admin, "has_view_permission", may_view)


def state() -> tuple[Any, ...]:
    """Return what a button would change."""
    return (
        *Job.objects.order_by("pk").values_list("pk", "status", "cancel_requested_at", "priority"),
        *Schedule.objects.values_list("pk", "paused_at", "overridden"),
    )


@pytest.mark.parametrize(("model", "columns", "buttons"), BUTTONS)
@pytest.mark.promise("action-permission")
def test_a_button_asks_the_method(
    model: str, columns: dict[str, Any], buttons: list[tuple[str, type, str]],
    root: Client, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    row: Any = FACTORIES[model].create(**columns)
    if model == "jobbatch":
        JobFactory.create(batch_id=row.pk, failed=True)
    before = state()
    page, elsewhere = url("change", row.pk, model=model), {"mute", "change"}
    addresses = {permission: url(button, "abc" if button == "failure_mute" else row.pk, model=model)
                 for button, _admin, permission in buttons}  # fmt: skip
    html = body(root, page)
    assert all(addresses[each] in html for each in addresses.keys() - elsewhere - {"rerun_done"})
    for _button, admin, permission in buttons:
        with monkeypatch.context() as patched:
            patched.setattr(admin, f"has_{permission}_permission", lambda *_: False)
            assert root.post(addresses[permission]).status_code == 403
    for _button, admin, permission in buttons:
        monkeypatch.setattr(admin, f"has_{permission}_permission", lambda *_: False)
    html = body(root, page)
    assert not any(addresses[each] in html for each in addresses.keys() - elsewhere)
    assert state() == before


@pytest.mark.parametrize(
    ("model", "columns", "gets", "posts"),
    [
        ("job", {"queue_name": "hidden"}, ["change", "clone", "workflow"], ["cancel"]),
        ("jobbatch", {"name": "hidden"}, ["change", "workflow"], ["cancel"]),
        ("schedule", {"name": "hidden"}, [], ["pause", "enqueue"]),
        ("worker", {"host": "hidden"}, ["change"], ["stop"]),
    ],
)
@pytest.mark.promise("view-permission")
def test_a_row_that_one_may_not_view_has_no_page_and_no_buttons(
    model: str, columns: dict[str, str], gets: list[str], posts: list[str], root: Client, one_is_hidden: None
) -> None:
    shown, hidden = (FACTORIES[model].create(**each) for each in ({}, columns))
    before = state()
    for page in gets:
        assert root.get(url(page, shown.pk, model=model)).status_code == 200
        assert root.get(url(page, hidden.pk, model=model)).status_code == 403
    for button in posts:
        assert root.post(url(button, hidden.pk, model=model)).status_code == 403
    if model == "schedule":
        data = {"action": "pause_schedules", "_selected_action": [shown.pk, hidden.pk], "confirmed": "1"}
        assert root.post(url("changelist", model="schedule"), data).status_code == 403
    assert state() == before


def test_a_job_that_one_may_not_view_tells_no_progress(root: Client, one_is_hidden: None) -> None:
    jobs = [JobFactory.create(running=True, marks=8, queue_name=name) for name in ("default", "hidden")]
    for job in jobs:
        JobProgress.objects.create(job=job, done=1, note=f"reading {job.queue_name}")
    told = body(root, url("progress"), keys=",".join(str(job.pk) for job in jobs))
    assert "reading default" in told
    assert "reading hidden" not in told


@pytest.mark.promise("failures-permission")
def test_the_pages_of_failures_ask_the_method(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    JobFactory.create(failed=True, error_fingerprint="abc")
    monkeypatch.setattr(JobAdmin, "has_view_failures_permission", lambda self, request: False)
    assert root.get(url("failures")).status_code == 403
    assert root.get(url("failure", "abc")).status_code == 403
    assert url("failures") not in body(root, url("overview"))
