"""Who may see and do what: every URL of every page, as each kind of user.

The URLs are read from the admin classes, so that a new page is tested, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.urls import reverse
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

from .helpers import STATES, staff, url

pytestmark = pytest.mark.django_db

ADMINS = {
    model._meta.model_name: model_admin
    for model, model_admin in admin.site._registry.items()
    if model._meta.app_label == "django_pgqueue"
}
#: What else may be in a URL than the id of a row.
VALUES = {"name": "pause"}
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
    made: list[Any] = [
        JobFactory.create(failed=True, batch_id=batch.pk), batch, QueueFactory.create(name="mail"),
        Pause.objects.get(), ScheduleFactory.create(name="nightly"), Limit.objects.get(),
        WorkerFactory.create(), JobStatFactory.create(),
    ]  # fmt: skip
    return {str(row._meta.model_name): row for row in made}


def urls(kind: str, rows: dict[str, Model]) -> Iterator[tuple[str, str]]:
    """Yield the name of each URL of an admin class, and the URL for its row."""
    pk = quote(rows[kind].pk) if kind in rows else "1"
    for pattern in ADMINS[kind].get_urls():
        wanted = pattern.pattern.converters
        values = {name: pk if name == "object_id" else VALUES.get(name, pk) for name in wanted}
        if pattern.name is not None:
            yield (
                pattern.name.removeprefix("django_pgqueue_"),
                reverse(f"admin:{pattern.name}", kwargs=values),
            )


def stored() -> dict[str, Any]:
    """Return what the tables of the queue and the history of the admin contain, as checksums."""
    with connection.cursor() as cursor:
        cursor.execute(_TABLES)
        names = sorted(name for (name,) in cursor.fetchall())
        parts = [f"SELECT '{name}', count(*), sum(hashtext(t::text)) FROM {name} AS t" for name in names]
        cursor.execute(" UNION ALL ".join(parts))
        return {name: rest for name, *rest in cursor.fetchall()}


@pytest.mark.parametrize("kind", ADMINS)
def test_each_statement_of_a_page_has_a_time_limit(kind: str, rows: dict[str, Model], root: Client) -> None:
    unlimited = set()

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "pgqueue" in sql and "set_config" not in sql:
            with context["connection"].connection.cursor() as cursor:
                cursor.execute("SHOW statement_timeout")
                if cursor.fetchone() == ("0",):
                    unlimited.add(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        for _name, address in urls(kind, rows):
            root.get(address)
    assert unlimited == set()


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
    for action in ADMINS[kind].actions or ():
        if isinstance(action, str):
            data = {"action": action, "_selected_action": [rows[kind].pk], "index": 0}
            assert root.post(url("changelist", model=kind), data).status_code in (200, 302), action


def sent(rows: dict[str, Model], kind: str) -> dict[str, Any]:
    """Return the values of forms, for the actions of this list and its row."""
    actions = [name for name in ADMINS[kind].actions or () if isinstance(name, str)]
    pk = rows[kind].pk if kind in rows else 1
    return {**SENT, "action": actions[0] if actions else "", "_selected_action": [pk]}


@pytest.mark.parametrize("kind", ADMINS)
@pytest.mark.promise("get-changes-nothing")
def test_a_get_changes_nothing(kind: str, rows: dict[str, Model], root: Client) -> None:
    before = stored()
    for name, address in urls(kind, rows):
        for query in ({}, sent(rows, kind)):
            assert root.get(address, query).status_code in {200, 302, 400, 403, 404, 405}, name
    assert stored() == before


@pytest.mark.parametrize("kind", ADMINS)
@pytest.mark.promise("get-changes-nothing")
def test_a_post_without_the_token_of_the_form_changes_nothing(kind: str, rows: dict[str, Model]) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    before = stored()
    for name, address in urls(kind, rows):
        assert client.post(address, sent(rows, kind)).status_code == 403, name
    assert stored() == before


@pytest.mark.parametrize("kind", ADMINS)
@pytest.mark.promise("no-forbidden-button")
def test_who_may_only_view_changes_nothing(kind: str, rows: dict[str, Model]) -> None:
    """With the permission to view everything, and to see all arguments."""
    viewing = Permission.objects.filter(
        content_type__app_label="django_pgqueue", codename__startswith="view_"
    )
    client = staff(*viewing.values_list("codename", flat=True))
    before = stored()
    for _, address in urls(kind, rows):
        client.post(address, sent(rows, kind))
    assert stored() == before


@pytest.mark.parametrize("kind", ADMINS)
@pytest.mark.promise("no-forbidden-button")
def test_who_may_view_everything_else_sees_none_of_these_pages(kind: str, rows: dict[str, Model]) -> None:
    """Nor does somebody who is not logged in."""
    codenames = set(
        Permission.objects.filter(content_type__app_label="django_pgqueue")
        .exclude(codename__endswith=f"_{kind}")
        .values_list("codename", flat=True)
    )
    others, stranger = staff(*codenames), Client()
    for name, address in urls(kind, rows):
        assert others.get(address).status_code in {403, 405}, name
        assert others.post(address, sent(rows, kind)).status_code == 403, name
        assert stranger.get(address).status_code == 302, name
        assert stranger.get(address)["Location"].startswith("/admin/login/"), name


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


@pytest.mark.parametrize("kind", ADMINS)
@pytest.mark.promise("arguments-need-permission")
def test_no_page_shows_arguments_without_the_permission(kind: str, rows: dict[str, Any]) -> None:
    viewing = Permission.objects.filter(
        content_type__app_label="django_pgqueue", codename__startswith="view_"
    )
    codenames = set(viewing.values_list("codename", flat=True))
    blind, seeing = staff(*codenames - {"view_arguments_job"}), staff(*codenames)
    secret = "zanzibar"
    states: tuple[dict[str, Any], ...] = (
        {"failed": True}, {"done": True, "result": [secret]}, {"running": True, "worker": 1},
    )  # fmt: skip
    jobs = [
        JobFactory.create(args=[secret], kwargs={"to": secret}, batch_id=rows["jobbatch"].pk, **state)
        for state in states
    ]
    for job in jobs if kind == "job" else jobs[:1]:
        for name, address in urls(kind, {**rows, "job": job}):
            assert secret not in blind.get(address).content.decode(), name
            if name == "job_change":
                assert secret in seeing.get(address).content.decode()


def test_an_entry_in_the_history_is_for_those_who_may_view_its_job(
    rows: dict[str, Model], root: Client
) -> None:
    job = rows["job"]
    root.post(reverse("admin:django_pgqueue_job_retry", args=[job.pk]))
    history = reverse("admin:django_pgqueue_job_history", args=[job.pk])
    assert "Action: Retry." in root.get(history).content.decode()
    assert "Action: Retry." in staff("view_job").get(history).content.decode()
    assert staff("view_queue").get(history).status_code == 403
    assert (
        history
        in staff("view_job").get(reverse("admin:django_pgqueue_job_change", args=[job.pk])).content.decode()
    )
    assert Job.objects.get(pk=job.pk).status == "pending"
