"""Who may see and do what: every URL of every page, as each kind of user.

The URLs are read from the admin classes, so that a new page is tested, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from html import unescape
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.db.models import Model
from django.test import Client
from django.utils import timezone

from django_pgqueue import pause, set_limit
from django_pgqueue.models import Job, Limit, Pause, Schedule
from tests.support.factories import (
    BatchFactory,
    JobFactory,
    JobStatFactory,
    QueueFactory,
    ScheduleFactory,
    WorkerFactory,
)
from tests.support.figures import fold, note

from .helpers import STATES, body, pages_of, staff, url

pytestmark = pytest.mark.django_db

ADMINS: dict[str, Any] = {
    str(model._meta.model_name): model_admin
    for model, model_admin in admin.site._registry.items()
    if model._meta.app_label == "django_pgqueue"
}
VIEWING = Permission.objects.filter(content_type__app_label="django_pgqueue", codename__startswith="view_")
#: The permissions that a page needs, if that is not the one to view rows of its kind. Those of a button are
#: also those of the action of the list. None: nobody has the page.
NEEDS: dict[str, str | None] = {
    "job_retry": "view_job retry_job",
    "job_run_now": "view_job run_now_job",
    "job_edit": "view_job edit_job",
    "job_extend": "view_job extend_job",
    "job_cancel": "view_job cancel_job",
    "job_clone": "view_job view_arguments_job clone_job",
    "job_failure_mute": "view_job mute_failuregroup",
    "jobbatch_workflow": "view_jobbatch view_job",
    "jobbatch_cancel": "view_jobbatch cancel_job",
    "jobbatch_retry": "view_jobbatch retry_job",
    "worker_replace": "view_worker drain_worker",
    "worker_stop": "view_worker drain_worker",
    "pause_resume": "view_pause delete_pause",
    "schedule_pause": "view_schedule pause_schedule",
    "schedule_resume": "view_schedule pause_schedule",
    "schedule_enqueue": "view_schedule enqueue_schedule",
    "schedule_restore": "change_schedule",
    **{f"{kind}_add": f"add_{kind}" for kind in ("queue", "pause", "schedule", "limit")},
    **{f"{kind}_delete": f"delete_{kind}" for kind in ("queue", "schedule", "limit")},
    **{f"{kind}_add": None for kind in ("job", "jobbatch", "worker")},
    **{f"{kind}_delete": None for kind in ("job", "jobbatch", "worker", "pause")},
}
#: The rows that have a button, if that of the fixture has not.
FITTING: dict[str, Callable[[], Any]] = {
    "job_run_now": lambda: JobFactory.create(scheduled=True),
    "job_edit": lambda: JobFactory.create(),
    "job_extend": lambda: JobFactory.create(running=True, deadline=timezone.now() + timedelta(hours=1)),
    "job_cancel": lambda: JobFactory.create(),
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
_TABLES = """
    SELECT relname FROM pg_class JOIN pg_namespace AS space ON space.oid = relnamespace
    WHERE nspname = current_schema() AND relkind = 'r'
        AND (relname LIKE 'pgqueue%' OR relname = 'django_admin_log')
"""


@pytest.fixture(autouse=True)
def rows() -> dict[str, Model]:
    """One row of each kind on which there is something to do."""
    pause(queue="mail")
    set_limit(name="acme", concurrency=1)
    batch = BatchFactory.create()
    note(connection.connection, "f", job_id=7)
    fold(connection.connection)
    made: list[Any] = [
        JobFactory.create(failed=True, batch_id=batch.pk), batch, QueueFactory.create(name="mail"),
        Pause.objects.get(), ScheduleFactory.create(name="nightly"), Limit.objects.get(),
        WorkerFactory.create(), JobStatFactory.create(),
    ]  # fmt: skip
    return {str(row._meta.model_name): row for row in made}


def urls(kind: str, rows: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each URL of an admin class, and the URL for its row."""
    pk = quote(rows[kind].pk)
    return pages_of(ADMINS[kind], object_id=pk, fingerprint="f", task_path="tests.app.tasks.add")


def actions(kind: str) -> list[str]:
    return [name for name in ADMINS[kind].actions or () if isinstance(name, str)]


def sent(rows: dict[str, Model], kind: str) -> dict[str, Any]:
    """Return the values of forms, for the actions of this list and its row."""
    return {**SENT, "action": (*actions(kind), "")[0], "_selected_action": [rows[kind].pk]}


def stored() -> dict[str, Any]:
    """Return what the tables of the queue and the history of the admin contain, as checksums."""
    with connection.cursor() as cursor:
        cursor.execute(_TABLES)
        names = sorted(name for (name,) in cursor.fetchall())
        parts = [f"SELECT '{name}', count(*), sum(hashtext(t::text)) FROM {name} AS t" for name in names]
        cursor.execute(" UNION ALL ".join(parts))
        return {name: rest for name, *rest in cursor.fetchall()}


@pytest.mark.parametrize("kind", ADMINS)
@pytest.mark.promise("no-forbidden-button", "nothing-until-granted")
def test_each_page_button_and_action_needs_its_permissions_and_no_others(
    kind: str, rows: dict[str, Any]
) -> None:
    client, data = cache(staff), sent(rows, kind)
    list_of = cache(lambda user: body(user, url("changelist", model=kind)))
    whole = Permission.objects.filter(content_type__app_label="django_pgqueue")
    listed = {name.rpartition("_")[0]: f'value="{name}"' for name in actions(kind)}
    for name, _address in urls(kind, rows):
        button = name.removeprefix(f"{kind}_")
        row = FITTING[name]() if name in FITTING else rows[kind]
        address = dict(urls(kind, {**rows, kind: row}))[name]
        needed = NEEDS.get(name, f"view_{kind}")
        assert Client().get(address)["Location"].startswith("/admin/login/"), name
        if needed is None:
            nobody = client(*whole.values_list("codename", flat=True))
            assert nobody.get(address).status_code == nobody.post(address, data).status_code == 403, name
            continue

        def offers(user: Client, button: str = button, row: Any = row, address: str = address) -> list[bool]:
            """Return whether the page of the row has the button, and whether the list has the action."""
            found = [address in body(user, url("change", row.pk, model=kind))]
            return [*found, *([listed[button] in list_of(user)] if button in listed else [])]

        posts = button in getattr(ADMINS[kind], "row_actions", ())
        is_button = posts or button == "clone"
        for missing in needed.split():
            others = client(*(each for each in needed.split() if each != missing))
            assert others.get(address).status_code in {403, 405}, (name, missing)
            assert others.post(address, data).status_code == 403, (name, missing)
            if is_button and f"view_{kind}" in needed and missing != f"view_{kind}":
                assert not any(offers(others)), (name, missing)
        allowed = client(*needed.split())
        assert not is_button or all(offers(allowed)), name
        with transaction.atomic():
            read, sending = allowed.get(address).status_code, allowed.post(address, data).status_code
            transaction.set_rollback(True)
        assert {200, 302} & {read, sending}, name
        assert not posts or read == 405, name


@pytest.mark.parametrize("kind", ADMINS)
@pytest.mark.promise("get-changes-nothing")
def test_a_get_changes_nothing_and_each_of_its_statements_has_a_time_limit(
    kind: str, rows: dict[str, Model], root: Client
) -> None:
    unlimited = set()

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "pgqueue" in sql and "set_config" not in sql:
            with context["connection"].connection.cursor() as cursor:
                cursor.execute("SHOW statement_timeout")
                if cursor.fetchone() == ("0",):
                    unlimited.add(sql)
        return execute(sql, params, many, context)

    before = stored()
    for name, address in urls(kind, rows):
        with connection.execute_wrapper(look):
            root.get(address)
        assert root.get(address, sent(rows, kind)).status_code in {200, 302, 400, 403, 404, 405}, name
    assert unlimited == set()
    assert stored() == before


@pytest.mark.parametrize("kind", ADMINS)
@pytest.mark.promise("get-changes-nothing", "no-forbidden-button")
def test_without_the_token_or_with_permissions_to_view_only_a_post_changes_nothing(
    kind: str, rows: dict[str, Model]
) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    viewer = staff(*VIEWING.values_list("codename", flat=True))
    before = stored()
    for name, address in urls(kind, rows):
        assert client.post(address, sent(rows, kind)).status_code == 403, name
        viewer.post(address, sent(rows, kind))
    assert stored() == before


@pytest.mark.parametrize("kind", ADMINS)
@pytest.mark.promise("no-forbidden-button")
def test_who_may_view_one_kind_finds_no_link_or_button_that_is_not_for_them(
    kind: str, rows: dict[str, Model]
) -> None:
    client = staff(f"view_{kind}")
    found: dict[str, str] = {}
    for name, address in [("index", "/admin/"), *urls(kind, rows)]:
        response = client.get(address)
        if response.status_code == 200 and response["Content-Type"].startswith("text/html"):
            html = response.content.decode()
            found |= {unescape(link): name for link in re.findall(r'(?:href|action)="(/admin/[^"?]+)', html)}
            assert "pgqueue-tool" not in html, f"{name} has a button"
    links = {
        link: name for link, name in found.items() if not re.match("/admin/(logout|password|jsi18n)", link)
    }
    assert any(f"/{kind}/" in link for link in links)
    refused = {link: name for link, name in links.items() if client.get(link).status_code not in {200, 302}}
    assert refused == {}


@pytest.mark.promise("arguments-need-permission")
def test_no_page_shows_arguments_without_the_permission(rows: dict[str, Any]) -> None:
    codenames = set(VIEWING.values_list("codename", flat=True))
    blind, seeing = staff(*codenames - {"view_arguments_job"}), staff(*codenames)
    secret = "zanzibar"
    states: tuple[dict[str, Any], ...] = (
        {"failed": True}, {"done": True, "result": [secret]}, {"running": True, "worker": 1},
    )  # fmt: skip
    jobs = [
        JobFactory.create(args=[secret], kwargs={"to": secret}, batch_id=rows["jobbatch"].pk, **state)
        for state in states
    ]
    for kind in ADMINS:
        for job in jobs if kind == "job" else jobs[:1]:
            for name, address in urls(kind, {**rows, "job": job}):
                if job == jobs[0] or str(job.pk) in address:
                    assert secret not in blind.get(address).content.decode(), name
    assert all(secret in body(seeing, url("change", job.pk)) for job in jobs)


@pytest.mark.parametrize("kind", ADMINS)
def test_every_page_works_without_time_zones(
    kind: str, rows: dict[str, Model], root: Client, settings: Any
) -> None:
    """All times are naive then."""
    for state in STATES.values():
        JobFactory.create(**state)
    Schedule.objects.update(next_run_at=timezone.now() + timedelta(minutes=5), paused_at=timezone.now())
    settings.USE_TZ = False
    for name, address in urls(kind, rows):
        assert root.get(address).status_code < 500, name
    for job in Job.objects.all() if kind == "job" else []:
        assert root.get(url("change", job.pk)).status_code == 200
    for action in actions(kind):
        data = {"action": action, "_selected_action": [rows[kind].pk], "index": 0}
        assert root.post(url("changelist", model=kind), data).status_code in (200, 302), action
