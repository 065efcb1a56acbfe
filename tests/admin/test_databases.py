"""Other admin sites, databases and routers: each page shows its database, and each button changes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.core.checks import run_checks
from django.db import connections
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_pgqueue import cancel, pause
from django_pgqueue.admin import overview
from django_pgqueue.admin.bulk import confirm, task as bulk
from django_pgqueue.admin.jobs import fields
from django_pgqueue.explanation import Reason
from django_pgqueue.models import Job, JobStat, Pause, Schedule
from django_pgqueue.postgres.timeout import TimeLimitReached
from django_pgqueue.testing import run_jobs
from tests.support import schedules
from tests.support.databases import alias, migrate
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory
from tests.support.figures import failure
from tests.support.servers import Pair, primary_and_standby

from .helpers import CHANGES, Page, body, listed, press, stored
from .sites import plain_urls

pytestmark = [pytest.mark.django_db(databases=["default", "other"]), pytest.mark.urls("tests.admin.sites")]


@dataclass
class Router:
    """Says where to read and to write what belongs to the queue."""

    read: str
    write: str

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return self.read if model._meta.app_label == "django_pgqueue" else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return self.write if model._meta.app_label == "django_pgqueue" else None


#: Where the change is made, and where it is not.
WAYS = {"replica": ("default", "other"), "site": ("other", "default")}
#: The site has no batches. What adds a row is the method that saves a change.
NOT = {"site": lambda model, page: model == "jobbatch", "replica": lambda model, page: page == "add"}
BY_WAY = [
    (what, way) for what, change in CHANGES.items() for way in WAYS if not NOT[way](change[0], change[2])
]


@pytest.mark.parametrize(("what", "way"), BY_WAY)
@pytest.mark.promise("each-action-in-history")
def test_a_change_is_made_in_one_database_and_is_in_the_history(
    what: str, way: str, root: Client, settings: Any
) -> None:
    """A router reads from a replica, or a site has another database. The row is in both databases."""
    model, make, page, data, words = CHANGES[what]
    site = "ops" if way == "site" else "admin"
    changed, kept = WAYS[way]
    row: Any = make() if make else None
    if row is not None:
        type(row)._default_manager.using("other").bulk_create([row])
    if model == "jobbatch":
        Job.objects.using("other").bulk_create(Job.objects.using("default"))
    if page == "changelist":
        data = {**data, "_selected_action": [row.pk]}
    parts = [quote(row.pk)] if row is not None and page not in {"overview", "changelist"} else []
    address = reverse(f"{site}:django_pgqueue_{model}_{page}", args=parts)
    settings.DATABASE_ROUTERS = [Router("other", "default")] if way == "replica" else []
    before = {alias: stored(alias, history=False) for alias in WAYS[way]}
    response = root.post(address, data)
    if response.status_code == 200:  # it asks first
        asked = response.content.decode()
        assert ('href="/admin/django_pgqueue' in asked) is (way == "replica")
        response = root.post(address, {**data, **Page(address, asked).fields})
    assert response.status_code == 302
    assert response["Location"].startswith((f"/{site}/", "../", "."))
    assert stored(kept, history=False) == before[kept]
    assert stored(changed, history=False) != before[changed]
    if words is None:
        return
    [entry] = LogEntry.objects.all()
    assert (entry.user.get_username(), entry.get_change_message()) == ("root", words)
    assert entry.object_repr
    if way == "replica" and parts and page != "delete":
        history = body(root, reverse(f"{site}:django_pgqueue_{model}_history", args=parts))
        assert all(each in history for each in (words, "root"))


def test_a_name_is_taken_in_its_own_database(root: Client) -> None:
    for model in ("queue", "pause", "limit", "schedule"):
        [data] = [
            data for kind, _row, page, data, _said in CHANGES.values() if (kind, page) == (model, "add")
        ]
        own, others = (reverse(f"{site}:django_pgqueue_{model}_add") for site in ("admin", "ops"))
        assert root.post(own, data).status_code == root.post(others, data).status_code == 302
        assert "already exists" in root.post(others, data).content.decode()


def test_the_pages_of_a_site_show_its_database(root: Client) -> None:
    JobFactory.create(queue_name="only here")
    WorkerFactory.create(id=7, host="only here")
    JobStatFactory.create(queue_name="only here")
    schedules.create("only here")
    failure(message="only here")
    pause(queue="only-here")
    first, second = (JobFactory.build(pk=pk, task_path="there.t", queue_name="there") for pk in (10, 11))
    second.parent_ids = [first.pk]
    failed = JobFactory.build(pk=12, task_path="tests.app.tasks.noop", queue_name="there", failed=True)
    Job.objects.using("other").bulk_create([first, second, failed])
    WorkerFactory.build(id=7, host="there").save(using="other")
    now = timezone.now()
    JobStat.objects.using("other").create(minute=now, queue_name="there", task_path="there.t", done=1)
    declared = {"source": "code", "declared": {"priority": None}, "overridden": ["priority"]}
    schedules.run(schedules.create("there", using="other", **declared), job_id=12)
    failure(alias="other", message="only there")
    Pause.objects.using("other").create(kind="queue", name="there")
    for page, *parts in (
        ("job_changelist",), ("job_overview",), ("job_change", 12), ("job_change", "other:12"),
        ("job_clone", 12), ("job_workflow", 10), ("job_failures",), ("job_failure", "f"),
        ("queue_changelist",), ("queue_change", "there"), ("worker_changelist",), ("worker_change", 7),
        ("jobstat_changelist",), ("jobstat_task", "there.t"), ("pause_changelist",),
        ("schedule_changelist",), ("schedule_change", "there"), ("jobstat_database",),
    ):  # fmt: skip
        html = body(root, reverse(f"ops:django_pgqueue_{page}", args=parts))
        assert ("pgqueue_job_live" if page == "jobstat_database" else "there") in html, page
        assert "only here" not in html, page
        assert 'href="/admin/' not in html, page
    address = "/ops/django_pgqueue/job/"
    assert listed(root, address, queue="there", q="noop") == [12]
    assert 'href="http://testserver/ops/django_pgqueue/job/12/change/"' in body(root, f"{address}12/change/")
    assert root.get("/admin/django_pgqueue/job/10/workflow/").status_code == 302


def test_many_jobs_of_another_database_change_there(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "MOST_AT_ONCE", 1)
    here = JobFactory.create(failed=True)
    Job.objects.using("other").bulk_create(JobFactory.build(pk=here.pk + n, failed=True) for n in range(3))
    WorkerFactory.build().save(using="other")
    data = {"action": "retry_jobs", "_selected_action": [here.pk], "select_across": 1, "index": 0}
    address = "/ops/django_pgqueue/job/?status=failed"
    response = root.post(address, press(root, address, **data).fields)
    job = Job.objects.using("other").get(task_path=bulk.run.module_path)
    assert response["Location"] == f"/ops/django_pgqueue/job/{job.pk}/change/"
    [ran] = run_jobs(using="other", limit=1)
    assert ran.result == {"changed": 3, "of": 3, "words": "3 jobs run again."}
    assert Job.objects.using("other").filter(status="pending").count() == 3
    assert Job.objects.get().status == "failed"


def test_a_schedule_of_code_is_not_deleted_in_another_database_either(root: Client) -> None:
    schedules.create("nightly")
    schedules.create("nightly", using="other", source="code")
    address = "/ops/django_pgqueue/schedule/nightly/delete/"
    assert root.post(address, {"post": "yes"}).status_code == 403
    assert Schedule.objects.using("other").exists()


@pytest.mark.urls(plain_urls)
def test_a_plain_class_of_statistics_has_no_links(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even on a page that is too slow, and on that of a locked job, where the link is the fix."""
    job = JobFactory.create()
    monkeypatch.setattr(fields, "why", lambda job: Reason("locked", {"pid": 5}, job.pk, "default"))
    assert "5" in body(root, f"/admin/django_pgqueue/job/{job.pk}/change/")

    def slow(*_arguments: object, **_context: object) -> None:
        raise TimeLimitReached

    monkeypatch.setattr(overview, "console_page", slow)
    answer = root.get("/admin/django_pgqueue/job/overview/")
    assert answer.status_code == 503
    assert "Who waits for whom" not in answer.content.decode()


# --- Pages that only read are read from a real standby, and say so; everything else uses the primary


READ = ["job_changelist", "job_failures", "jobbatch_changelist", "jobstat_changelist", "jobstat_task"]
CHANGED = ["job_overview", "queue_changelist", "worker_changelist", "pause_changelist", "jobstat_database"]
SAYS = "This page is read from the replica “replica”, whose last change is "


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with primary_and_standby() as pair:
        yield pair


@pytest.fixture
def replicated(pair: Pair, settings: Any) -> Iterator[Pair]:
    """A primary and its standby, which have these aliases."""
    settings.DATABASE_ROUTERS = [Router("primary", "primary")]
    settings.PGQUEUE = {**settings.PGQUEUE, "REPLICAS": {"primary": "replica"}}
    with alias("primary", **pair.primary.address()), alias("replica", **pair.standby.address()):
        migrate("primary")
        yield pair


@pytest.mark.django_db(transaction=True)
def test_pages_that_only_read_are_read_from_the_replica_and_say_so(replicated: Pair, root: Client) -> None:
    """The list acts on the primary, and is read there if the replica does not answer."""

    def page(name: str) -> str:
        arguments = ["tests.app.tasks.noop"] if name == "jobstat_task" else []
        return body(root, reverse(f"admin:django_pgqueue_{name}", args=arguments))

    replicated.primary.ask("SELECT pgqueue_enqueue('tests.app.tasks.noop')")
    replicated.catch_up()
    assert [name for name in [*READ, *CHANGED] if SAYS in page(name)] == READ
    replicated.standby.ask("SELECT pg_wal_replay_pause()")
    replicated.primary.ask("SELECT pgqueue_enqueue('tests.app.tasks.fail')")
    assert "tests.app.tasks.fail" not in page("job_changelist")
    (second, first) = Job.objects.using("primary").values_list("pk", flat=True)
    assert "fail" in body(root, reverse("admin:django_pgqueue_job_change", args=[second]))
    retried = root.post(reverse("admin:django_pgqueue_job_cancel", args=[second]))
    assert Job.objects.using("primary").get(pk=second).status == "cancelled", retried
    replicated.standby.ask("SELECT pg_wal_replay_resume()")
    replicated.catch_up()
    assert "tests.app.tasks.fail" in page("job_changelist")
    assert cancel(Job.objects.using("replica").get(pk=first)) == 1
    assert Job.objects.using("primary").get(pk=first).status == "cancelled"
    with connections["replica"].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        replicated.standby.ask("SELECT pg_terminate_backend(%s, 5000)", cursor.fetchone())
    html = page("job_changelist")
    assert "The replica “replica” does not answer. This page is read from the primary." in html
    assert "tests.app.tasks.noop" in html


@pytest.mark.django_db(transaction=True)
def test_the_check_finds_what_is_no_standby_of_the_primary(replicated: Pair, settings: Any) -> None:
    wrong = "'default', which PGQUEUE['REPLICAS'] names, is not a standby of the database 'primary'"
    twice = "PGQUEUE['REPLICAS'] names one database twice."
    unknown = "PGQUEUE['REPLICAS'] names 'nowhere', which is not in DATABASES."
    for replica, said in (("replica", ""), ("default", wrong), ("primary", twice), ("nowhere", unknown)):
        settings.PGQUEUE = {**settings.PGQUEUE, "REPLICAS": {"primary": replica}}
        problems = run_checks(databases=["primary"])
        found = "\n".join(str(each.msg) for each in problems if each.id in {"pgqueue.W018", "pgqueue.E034"})
        assert said in found
        assert bool(found) is bool(said)
