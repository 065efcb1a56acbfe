"""The banner: what runs where, and where to look."""

from __future__ import annotations

import sys
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.contrib import admin
from django.test import override_settings
from django.urls import get_script_prefix, path, set_script_prefix

from django_pgqueue import task
from django_pgqueue.management.commands.runqueueworker import admin_urls, banner
from django_pgqueue.models import Job
from django_pgqueue.worker.options import WorkerOptions
from tests.admin import sites


@task
def here() -> None:
    """One that is found."""


SERVER: Any = SimpleNamespace(
    host="db.example.com", port=5433, dbname="shop", server_version=170_002, user="ann", password="secret"
)


def shown(*, checked: bool = True, list_tasks: bool = False, **options: Any) -> dict[str, str]:
    """The rows of a banner by their labels; the first and the last line as "first" and "last"."""
    lines = banner(WorkerOptions(**options), SERVER, checked=checked, list_tasks=list_tasks).splitlines()
    assert lines[1] == lines[-2] == ""
    rows: dict[str, str] = {}
    label = ""
    for line in lines[2:-2]:
        name, colon, text = line.strip().partition(": ")
        if line.startswith("  ") and line[2] != " " and colon:
            label = name
            rows[label] = text.strip()
        else:
            rows[label] += f"\n{line.strip()}"
    return {"first": lines[0], **rows, "last": lines[-1]}


def test_with_all_defaults() -> None:
    found = shown()
    assert found["first"].startswith("django_pgqueue 0.")
    assert found["first"].endswith(", PostgreSQL 17.2)")
    assert found["Database"] == 'shop on db.example.com, port 5433 (alias "default")'
    assert found["Queues"] == "all"
    assert found["Processes"] == "1 with 4 threads"
    assert found["Tasks"].endswith(" (-v 2 lists them)")
    assert found["Settings"] == "the defaults"
    assert found["Admin"] == "/admin/django_pgqueue/job/overview/"
    assert found["last"] == "Press Ctrl-C to stop. Running jobs then have 30 s to finish."


def test_with_many_options(settings: Any) -> None:
    settings.PGQUEUE = {"RETENTION": timedelta(days=3), "FAILED_RETENTION": 90_000, "HEARTBEAT": 2.5}
    found = shown(
        alias="other", exclude_queues=("slow", "mail"), processes=2, threads=1, async_slots=9, max_jobs=1,
        max_memory=500, grace=7.5, burst=True,
    )  # fmt: skip
    assert found["Database"].endswith('(alias "other")')
    assert found["Queues"] == "all but slow, mail"
    assert found["Processes"] == (
        "2, each with 1 thread and 9 async slots; replaced after 1 job; replaced at 500 MB of memory"
    )
    assert found["Settings"] == "FAILED_RETENTION = 90000 s, HEARTBEAT = 2.5, RETENTION = 3 days"
    assert "Admin" not in found, "the admin shows another database"
    assert found["last"] == "The command ends when no more jobs are due."
    assert shown(queues=("mail", "default"))["Queues"] == "mail, default"
    assert shown(queues=("mail", "default"), weights={"mail": 3})["Queues"] == "mail:3, default"


def test_the_tasks_are_listed_on_request() -> None:
    count, *paths = shown(list_tasks=True)["Tasks"].splitlines()
    assert int(count) == len(paths)
    assert here.module_path in paths
    assert paths == sorted(paths)
    assert shown(checked=False)["Tasks"].endswith(" imported so far; others when a job needs them")


def test_without_any_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_pgqueue.management.commands.runqueueworker.declared_tasks", list)
    assert shown()["Tasks"] == "none found in the tasks modules of the installed apps"


def test_each_admin_site_that_shows_the_database() -> None:
    with override_settings(ROOT_URLCONF="tests.admin.sites"):
        assert admin_urls("other") == ["/ops/django_pgqueue/job/overview/"]
        assert admin_urls("default") == ["/admin/django_pgqueue/job/overview/"]


def test_the_path_under_which_the_project_is_served_is_part_of_the_address() -> None:
    before = get_script_prefix()
    set_script_prefix("/intranet/")
    try:
        assert admin_urls("default") == ["/intranet/admin/django_pgqueue/job/overview/"]
    finally:
        set_script_prefix(before)


def test_a_site_without_pages_does_not_lead_to_another_one() -> None:
    """The name of Django's own site, "admin", finds the pages of any other one."""
    urls = ModuleType("tests.only_ops")
    urls.urlpatterns = [path("ops/", sites.other_site.urls)]  # type: ignore[attr-defined]
    sys.modules[urls.__name__] = urls
    try:
        with override_settings(ROOT_URLCONF=urls.__name__):
            assert admin_urls("default") == []
            assert admin_urls("other") == ["/ops/django_pgqueue/job/overview/"]
    finally:
        del sys.modules[urls.__name__]


@pytest.mark.parametrize("urlconf", ["tests.processes", "tests.no_such_module"])
def test_without_an_admin_in_the_urls_the_line_is_left_out(urlconf: str) -> None:
    with override_settings(ROOT_URLCONF=urlconf):
        assert "Admin" not in shown()


def test_without_the_admin_app_the_line_is_left_out(settings: Any) -> None:
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "django.contrib.admin"]
    assert admin.site.is_registered(Job)
    assert "Admin" not in shown()


def test_user_and_password_are_not_in_it() -> None:
    text = banner(WorkerOptions(), SERVER, checked=True, list_tasks=True)
    before_tasks = text.partition("Tasks")[0]
    assert "ann" not in before_tasks
    assert "secret" not in before_tasks
