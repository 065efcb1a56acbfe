"""Queues, limits and pauses: lists, pages and forms, where else they are told, and what fills a queue."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.contrib.admin import site
from django.test import Client, override_settings
from django.utils import timezone

from django_pgqueue import RateLimit, enqueue, enqueue_many, pause, set_limit
from django_pgqueue.admin import QueueAdmin
from django_pgqueue.models import Job, Limit, Pause, Queue
from django_pgqueue.monitoring import depth as module
from django_pgqueue.monitoring.depth import Backlog, backlog, depths
from tests.app import limit_tasks as tasks
from tests.app.tasks import noop
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory, WorkerFactory, ago
from tests.support.jobs import sql
from tests.support.plans import fill
from tests.support.sessions import Connection
from tests.support.wording import of_forms

from .helpers import STATES, act, ask, body, confirm, hidden_fields, listed, post, seen, staff, url, words

pytestmark = pytest.mark.django_db

QUEUES = "/admin/django_pgqueue/queue/"
LIMITS = "/admin/django_pgqueue/limit/"
PAUSES = "/admin/django_pgqueue/pause/"
HOUR = timedelta(hours=1)


def test_settings_of_a_queue(root: Client) -> None:
    given = {"name": "mail", "retention": "90 00:00:00", "backoff_base": "1"}
    assert root.post(f"{QUEUES}add/", given).status_code == 302
    queue = Queue.objects.get(pk="mail")
    assert (queue.retention, queue.failed_retention, queue.backoff_base) == (timedelta(days=90), None, 1)
    changed = {**given, "name": "renamed", "failed_retention": "0"}
    assert root.post(f"{QUEUES}mail/change/", changed).status_code == 302
    assert Queue.objects.get().pk == "mail", "jobs bear the name: it stays"
    assert Queue.objects.get().failed_retention == timedelta(0)
    assert root.post(f"{QUEUES}mail/delete/", {"post": "yes"}).status_code == 302
    assert not Queue.objects.exists()


def test_settings_that_cannot_be(root: Client, wording: Any) -> None:
    QueueFactory.create(name="taken")
    form: Any = site.get_model_admin(Queue).get_form(root.get(f"{QUEUES}add/").wsgi_request)
    said = {}
    for mistake in (
        {"name": "a b"}, {"name": "taken"}, {"retention": "-1 00:00:00"}, {"backoff_base": "-1"},
        {"backoff_base": "9", "backoff_ceiling": "3"},
    ):  # fmt: skip
        [errors] = form({"name": "mail", **mistake}).errors.values()
        said[str(mistake)] = words(str(errors))
    assert said == wording
    assert root.post(f"{QUEUES}add/", {"name": "a b"}).status_code == 200
    assert Queue.objects.count() == 1


def test_the_list_shows_every_queue_of_the_overview(root: Client, wording: Any) -> None:
    """With its settings, or a link to where it gets them, with its pause, or a link that pauses it."""
    JobFactory.create(queue_name="waits", run_after=ago(minutes=2))
    JobFactory.create(queue_name="runs", running=True)
    JobFactory.create(queue_name="blocked", **STATES["blocked"])
    JobFactory.create(queue_name="failed", failed=True)
    JobStatFactory.create(queue_name="ran")
    QueueFactory.create(name="settled", retention=timedelta(0), backoff_base=2)
    QueueFactory.create(name="runs", failed_retention=timedelta(days=90))
    pause(queue="settled", reason="down", author="ann")
    pages = {who: seen(client, QUEUES, "result_list") for who, client in
             (("root", root), ("a viewer", staff("view_queue")))}  # fmt: skip
    assert pages == wording
    on_overview = {row["name"] for row in root.get(url("overview")).context["queues"]}
    assert on_overview <= set(listed(root, QUEUES))
    assert 'value="waits"' in body(root, f"{QUEUES}add/", name="waits")
    assert 'value="waits"' in body(root, f"{PAUSES}add/", kind="queue", name="waits")


def test_search_and_pages_of_the_queues(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mail", "mail-bulk", "slow"):
        JobFactory.create(queue_name=name)
    QueueFactory.create(name="Mail-late")
    assert listed(root, QUEUES, q="MAIL") == ["Mail-late", "mail", "mail-bulk"]
    assert listed(root, QUEUES, q="mail bulk") == ["mail-bulk"]
    assert listed(root, QUEUES, q="none") == []
    monkeypatch.setattr(QueueAdmin, "list_per_page", 3)
    assert listed(root, QUEUES) == ["Mail-late", "mail", "mail-bulk"]
    assert listed(root, QUEUES, p=2) == ["slow"]
    assert len(listed(root, QUEUES, all="")) == 4
    assert root.get(QUEUES, {"p": 9}).status_code == 302


def test_the_page_of_a_queue(root: Client, wording: Any) -> None:
    here = {"host": "app1", "pid": 1, "queues": ["mail"], "heartbeat_at": ago(hours=-1)}
    worker = WorkerFactory.create(id=7, slots=4, **here)
    WorkerFactory.create(id=8, host="app2", queues=["other"])
    JobFactory.create(queue_name="mail", run_after=ago(minutes=5))
    JobFactory.create(queue_name="mail", scheduled=True)
    JobFactory.create(queue_name="mail", running=True, worker=worker.pk, last_attempted_at=ago(minutes=2))
    JobFactory.create(queue_name="mail", running=True, worker=-1, last_attempted_at=ago(minutes=1))
    JobFactory.create_batch(2, queue_name="mail", retrying=True)
    JobFactory.create(queue_name="mail", failed=True)
    JobFactory.create(queue_name="other")
    JobStatFactory.create(queue_name="mail", task_path="shop.<b>.a", done=3, failed=0)
    JobStatFactory.create(queue_name="mail", task_path="shop.tasks.b", done=1, failed=0)
    pause(queue="mail", author="ann", reason="bounces")
    set_limit(queue="mail", concurrency=7)
    address = f"{QUEUES}mail/change/"
    page = body(root, address)
    rates = words(page, "pgqueue-figures").partition("Attempts")[0]
    assert [words(page, "pgqueue-now"), rates, words(page, "pgqueue-tasks-box")] == wording
    assert page.count("data-pgqueue-chart") == 3


def test_a_queue_without_settings_has_a_page_and_gets_settings_there(root: Client) -> None:
    JobFactory.create(queue_name="waits")
    address = f"{QUEUES}waits/change/"
    assert "No worker serves this queue." in seen(root, address)
    assert "/delete/" not in seen(root, address)
    assert root.get(f"{QUEUES}waits/delete/").status_code == 403
    assert root.post(address, {"backoff_base": "3"}).status_code == 302
    assert Queue.objects.get().backoff_base == 3
    assert root.get(f"{QUEUES}nobody/change/").status_code == 302, "no such queue"
    WorkerFactory.create(queues=["served"])
    pause(queue="paused")
    for name in ("served", "paused"):
        assert "Ready" in seen(root, f"{QUEUES}{name}/change/")


def test_who_may_view_but_not_add_gets_no_form_for_the_first_settings() -> None:
    JobFactory.create(queue_name="waits")
    JobStatFactory.create(queue_name="waits", task_path="shop.tasks.b")
    WorkerFactory.create()
    address = f"{QUEUES}waits/change/"
    viewer = staff("view_queue", "change_queue")
    page = seen(viewer, address)
    assert not [each for each in ("_save", "/job/", "/worker/", "/jobstat/", "/pause/add/") if each in page]
    assert viewer.post(address, {"backoff_base": "3"}).status_code == 403
    assert not Queue.objects.exists()


@of_forms
@pytest.mark.parametrize(
    ("declared", "change"),
    [
        ("'{3}', '{wait}', '{NULL}', '{NULL}', '{NULL}'", {"concurrency": "7"}),
        ("'{NULL}', '{wait}', '{9}', '{1 minute}', '{2}'", {"rate": "3", "per": "0:00:10"}),
    ],
    ids=["concurrency", "rate"],
)
def test_a_limit_that_the_code_declares_says_so_and_cannot_be_deleted(
    root: Client, declared: str, change: dict[str, str], wording: Any
) -> None:
    sql(f"SELECT _pgqueue_declare_limits('{{crm}}', {declared})")
    before = seen(root, LIMITS, "result_list")
    page = seen(root, f"{LIMITS}crm/change/")
    assert root.post(f"{LIMITS}crm/change/", change).status_code == 302
    assert [before, page, seen(root, LIMITS, "result_list")] == wording
    assert root.post(f"{LIMITS}crm/delete/", {"post": "yes"}).status_code == 403


def test_a_limit_that_the_code_no_longer_declares_says_so_and_can_be_deleted(root: Client) -> None:
    Limit.objects.create(name="removed", concurrency=3)
    for page in (LIMITS, f"{LIMITS}removed/change/"):
        assert "no longer declared in code; it can be deleted" in seen(root, page)
    assert f"{LIMITS}removed/delete/" in seen(root, page)
    assert root.post(f"{LIMITS}removed/delete/", {"post": "yes"}).status_code == 302
    assert not Limit.objects.exists()


def test_the_list_shows_how_many_jobs_run_under_each_limit(root: Client) -> None:
    set_limit(name="k", concurrency=5)
    set_limit(queue="default", concurrency=5)
    set_limit(queue="mail", concurrency=5)
    set_limit(everything=True, concurrency=5)
    jobs = enqueue_many(tasks.two.using(limit_key=key).bind("a") for key in ("1", "2")).ids
    Job.objects.filter(pk=jobs[0]).update(limit_key="k/1")
    Job.objects.filter(pk=jobs[1]).update(limit_key="k2/1", queue_name="mail")
    Job.objects.filter(pk__in=jobs).update(status="running", worker=1, lease=1)
    response = root.get(LIMITS)
    found = {limit.pk: limit.running_now for limit in response.context["cl"].result_list}
    assert found == {"k": 1, "queue:default": 1, "queue:mail": 1, "*": 2}


def limits_of(client: Client, job: int) -> str:
    """Return what the page of a job says about limits."""
    found = re.search(r'field-limits">(.*?)<div class="form-row', body(client, url("change", job)), re.DOTALL)
    return words(found[1]) if found else ""


def test_the_page_of_a_job_says_what_limits_it_its_place_in_line_and_who_holds_the_slot(
    root: Client, wording: Any
) -> None:
    ship = {"task_path": tasks.ship.module_path, "limit_key": f"{tasks.ship.module_path}/7"}
    JobFactory.create(id=101, wait_position=1, **ship)
    JobFactory.create(id=104, cancelled=True, **ship)
    told = {
        "alone": limits_of(root, 101),
        "over": limits_of(root, 104),
        "none": limits_of(root, enqueue(noop).pk),
    }
    Job.objects.filter(pk=101).update(status="running", worker=1, lease=1)
    for place in (2, 3):
        JobFactory.create(id=100 + place, wait_position=place, **ship)
    set_limit(queue="default", concurrency=9)
    told |= {name: limits_of(root, key) for name, key in (("runs", 101), ("is next", 102), ("waits", 103))}
    told["waits, for a viewer"] = limits_of(staff("view_job"), 103)
    assert listed(root, q=f"key:{ship['limit_key']}") == [103, 102, 101]
    set_limit(name="k", rate_limit=RateLimit(1, per=HOUR))
    JobFactory.create(id=105, limit_key="k/x", wait_position=1, queue_name="mail")
    told["may start"] = limits_of(root, 105)
    sql("SELECT pgqueue_take_rate('k', 'x')")
    told["waits for its rate"] = limits_of(root, 105)
    assert told == wording


def test_the_reason_and_the_end_can_be_changed_but_not_the_target(root: Client) -> None:
    found = pause(queue="mail", reason="down", author="ann")
    given = {"kind": "all", "name": "other", "reason": "slow", "until_0": "", "until_1": ""}
    assert root.post(f"{PAUSES}{found.pk}/change/", given).status_code == 302
    found = Pause.objects.get()
    assert (found.kind, found.name, found.reason, found.author) == ("queue", "mail", "slow", "root")


def test_a_pause_ends_at_once_and_several_after_a_question(root: Client, wording: Any) -> None:
    def resume(*pauses: Pause) -> Any:
        data = {"action": "resume_selected", "_selected_action": [each.pk for each in pauses]}
        return post(root, PAUSES, **data) if len(pauses) == 1 else confirm(root, PAUSES, **data)

    assert resume(pause(queue="mail")) == ("1 pause has ended.", "success")
    found = pause(queue="mail")
    assert "deletelink" not in body(root, f"{PAUSES}{found.pk}/change/")
    assert post(root, f"{PAUSES}{found.pk}/resume/") == ("1 pause has ended.", "success")
    several = pause(queue="mail", author="ann", reason="<down>"), pause(task="shop.tasks.sync")
    everything = pause(everything=True)
    assert seen(root, PAUSES, "result_list").replace("delete_selected", "") == wording(name="list")
    assert [resume(*several), confirm(root, f"{PAUSES}{everything.pk}/resume/")] == wording(name="asked")
    assert not Pause.objects.exists()


def test_the_form_says_what_a_name_is_and_suggests_those_in_use(root: Client) -> None:
    QueueFactory.create(name="mail")
    form = body(root, f"{PAUSES}add/")
    assert "The name of a queue, the path of a task" in form
    assert 'list="pgqueue-names"' in form
    [found] = re.findall(r'<datalist id="pgqueue-names">(.*?)</datalist>', form)
    assert '<option value="mail" label="queue">' in found
    assert f'<option value="{noop.module_path}" label="task">' in found
    assert "datalist" not in body(root, f"{PAUSES}{pause(queue='mail').pk}/change/")


def test_a_banner_on_each_page_says_that_everything_is_paused(root: Client) -> None:
    """All pages have one frame."""
    pages = [url("overview"), url("changelist"), url("changelist", model="jobstat")]
    found = pause(everything=True, reason="<moving>", author="ann", duration=HOUR)
    for page in pages:
        html = body(root, page)
        assert "Everything is paused by ann until" in html
        assert ": &lt;moving&gt;." in html
        assert f'href="{PAUSES}{found.pk}/change/"' in html
    Pause.objects.update(until=timezone.now() - HOUR)
    assert "Everything is paused" not in body(root, pages[1])


def test_a_paused_job_is_retried_with_its_budget_and_other_blocked_ones_are_not(root: Client) -> None:
    paused = JobFactory.create(status="blocked", waiting_reason="paused by ann", attempts=3)
    blocked = JobFactory.create(status="blocked", waiting_reason="at most 2 at once")
    page = ask(root, "retry_jobs", paused, blocked)
    assert page.sentences == [
        "1 job whose task is paused would have all its attempts again when the pause ends.",
        "1 blocked job does not change.",
    ]
    assert page.confirm(root) == ("1 job runs again.", "success")
    assert Job.objects.get(pk=paused.pk).forgiven_attempts == 3
    assert f'action="{url("retry", paused.pk)}"' in body(root, url("change", paused.pk))
    assert f'action="{url("retry", blocked.pk)}"' not in body(root, url("change", blocked.pk))
    assert act(root, "run_now_jobs", paused)[1] == "warning"
    assert "The pause of its task has ended" in body(root, url("change", paused.pk))


def test_without_time_zones_a_pause_and_an_edit_have_an_end(root: Client, settings: Any) -> None:
    """Then forms have naive times, in the time zone of the settings."""
    settings.USE_TZ = False
    soon = (timezone.now() + HOUR).replace(microsecond=0)
    data = {"kind": "queue", "name": "mail", "until_0": f"{soon:%Y-%m-%d}", "until_1": f"{soon:%H:%M:%S}"}
    assert root.post(f"{PAUSES}add/", data).status_code == 302
    assert Pause.objects.get().until == soon
    job = JobFactory.create()
    asked = root.post(url("edit", job.pk)).content.decode()
    root.post(url("edit", job.pk), {**hidden_fields(asked), "run_after": f"{soon:%Y-%m-%dT%H:%M:%S}"})
    assert Job.objects.get().run_after == soon
    job = enqueue(noop)
    form = root.get(url("clone", job.pk)).context["form"]
    values = {name: form[name].value() or "" for name in form.fields}
    root.post(url("clone", job.pk), {**values, "run_after": f"{soon:%Y-%m-%dT%H:%M:%S}"})
    assert Job.objects.latest("pk").run_after == soon


# --- What fills a queue: what its waiting jobs have in common


def of(queue: str, **options: Any) -> Backlog:
    return backlog("default", depths("default")[queue], **{"arguments": True, **options})


def some_jobs() -> None:
    for n in range(24):
        JobFactory.create(
            queue_name="mail", task_path=noop.module_path, args=[n, "weekly"],
            group_key="acme" if n % 4 else None,
            kwargs={"tenant": "acme" if n % 4 else f"t{n}", "n": n, "password": "same", "deep": {"a": 1}},
        )  # fmt: skip
    JobFactory.create_batch(6, queue_name="mail", args=[], scheduled=True)
    blocked = {"status": "blocked", "waiting_reason": "at most 1", "wait_position": 1}
    JobFactory.create_batch(10, queue_name="mail", limit_key="api/x", args=[], **blocked)
    JobFactory.create_batch(10, queue_name="mail", done=True)
    JobFactory.create_batch(10, queue_name="mail", running=True)


def test_all_of_few_jobs_are_looked_at_and_no_redacted_value_is_shown() -> None:
    some_jobs()
    found = of("mail")
    assert (found.jobs, found.is_sample) == (40, False)
    assert [(each.kind, each.place, each.value, each.jobs) for each in found.shares] == [
        ("task", "", noop.module_path, 24), ("task", "", "tests.app.tasks.add", 16),
        ("group", "", "acme", 18), ("limit", "", "api/x", 10), ("argument", "args.1", "weekly", 24),
        ("argument", "kwargs.tenant", "acme", 18),
    ], "neither what is rare, nor what is redacted"  # fmt: skip
    assert found.shares[2].share == pytest.approx(18 / 40)
    assert {each.kind for each in of("mail", arguments=False).shares} == {"task", "group", "limit"}
    with override_settings(PGQUEUE={"REDACT": ["re:^weekly$"]}):
        assert not [each for each in of("mail").shares if each.value == "weekly"]


@pytest.mark.django_db(transaction=True)
def test_a_sample_of_many_jobs_has_the_same_shares(one: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(
        one, "pgqueue_job_live", 20_000, analyze=False, status="'pending'",
        queue_name="CASE WHEN n % 200 = 0 THEN 'rare' ELSE 'default' END",
        group_key="CASE WHEN n % 10 < 6 THEN 'flood' ELSE 'g' || n END",
    )  # fmt: skip
    monkeypatch.setattr(module, "PAGES", 100)
    monkeypatch.setattr(module, "LOOKED_AT", 50)
    found = of("default")
    assert found.is_sample
    assert 500 < found.jobs < 10_000
    [flood] = [each for each in found.shares if each.kind == "group"]
    assert flood.value == "flood"
    assert flood.share == pytest.approx(0.6, abs=0.1)
    rare = of("rare")
    assert (rare.is_sample, rare.jobs >= 1) == (True, True)


def test_a_tenant_floods_a_queue_and_its_jobs_are_cancelled(root: Client) -> None:
    """From the page of the queue: "Cancel these", and the confirmation. Others are shown less."""
    some_jobs()
    address = url("change", "mail", model="queue")
    html = body(root, address)
    page = words(html, "pgqueue-backlog")
    assert "acme argument kwargs.tenant, tests.app.tasks.noop | 45%" in page
    assert "Shares of all 40 waiting jobs." in page
    viewed = seen(staff("view_queue", "view_job"), address, "pgqueue-backlog")
    assert "acme" in viewed
    assert not [each for each in ("kwargs.tenant", "Cancel these") if each in viewed]
    assert 'id="pgqueue-backlog"' not in body(staff("view_queue"), address)
    for query, many in (("q=group%3Aacme", 18), ("q=key%3Aapi%2Fx", 10)):
        assert query in html
        assert len(listed(root, f"{url('changelist')}?queue=mail&{query}")) == many
    query = f"queue=mail&task={noop.module_path}&q=kwargs.tenant%3Dacme"
    assert f"{url('changelist')}?{query}".replace("&", "&amp;") in html
    asked = ask(root, "cancel_jobs", *Job.objects.all()[:1], query=query, across=True)
    assert asked.confirm(root)[1] == "success"
    cancelled = Job.objects.filter(status="cancelled")
    assert cancelled.count() == 18
    assert {job.kwargs["tenant"] for job in cancelled} == {"acme"}


def test_what_fills_a_queue_is_paused_from_its_page(root: Client) -> None:
    """Each task, group, limit key and argument has a link to the form, which pauses it as it is."""
    some_jobs()
    page = body(root, url("change", "mail", model="queue"))
    add = url("add", model="pause")
    found = map(unescape, re.findall(rf'href="({add}[^"]*)">Pause', page))
    links = {link for link in found if "kind=queue" not in link}
    for link in links:
        assert root.post(add, dict(parse_qsl(link.partition("?")[2]))).status_code == 302
    argument = next(link for link in links if "kwargs.tenant" in link)
    assert f'value="{noop.module_path} kwargs.tenant=acme"' in body(root, argument)
    made = {*Pause.objects.values_list("kind", "name")}
    assert {
        ("task", noop.module_path), ("group", "acme"), ("limit_key", "api/x"),
        ("argument", f"{noop.module_path} kwargs.tenant=acme"),
    } <= made  # fmt: skip
    assert len(made) == len(links)


def test_few_jobs_are_no_news(root: Client) -> None:
    JobFactory.create_batch(19, queue_name="mail")
    assert 'id="pgqueue-backlog"' not in body(root, url("change", "mail", model="queue"))
