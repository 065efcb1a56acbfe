"""Pages over several shards: one queue, a switch, and a shard that does not answer is named."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.messages import get_messages
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue import Batch, enqueue, pause, set_limit
from django_pgqueue.admin import JobAdmin, overview as overview_page
from django_pgqueue.admin.batches import BatchAdmin
from django_pgqueue.admin.bulk import actions
from django_pgqueue.admin.limits import LimitAdmin
from django_pgqueue.models import FailureGroup, Job, JobBatch, JobStat, Pause, Queue, Schedule, Worker
from django_pgqueue.monitoring.spans import rates, series
from django_pgqueue.postgres import ask
from django_pgqueue.postgres.clock import server_now
from django_pgqueue.postgres.timeout import TimeLimitReached
from django_pgqueue.testing import run_jobs
from tests.app.tasks import noop
from tests.support import figures
from tests.support.databases import sharded
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory, WorkerFactory, spread
from tests.support.figures import classes, failure
from tests.support.wording import shown

from .helpers import body, hidden_fields, rows_of, steady, url

BOTH = ["default", "other"]
pytestmark = pytest.mark.django_db(databases=BOTH)


def fill() -> None:
    for alias, count in zip(BOTH, (2, 3), strict=True):
        jobs = [JobFactory.build(id=number, queue_name="mail") for number in range(1, count + 1)]
        Job.objects.using(alias).bulk_create(jobs)
        QueueFactory.build(name="mail").save(using=alias, force_insert=True)
        WorkerFactory.build(id=5, host=f"app-{alias}", pid=7, slots=4).save(using=alias, force_insert=True)


def slow_on_other(read: Callable[..., Any]) -> Callable[..., Any]:
    def slow(alias: str, *arguments: Any) -> Any:
        if alias == "other":
            raise TimeLimitReached("slow")
        return read(alias, *arguments)

    return slow


def test_the_overview_adds_up_and_names_the_shard_that_does_not_answer(
    one_is_down: None, admin_client: Client, wording: Any
) -> None:
    fill()
    page = body(admin_client, url("overview"))
    lines = [re.sub(r"\b\d+(\.\d)? m?s\b", "<age>", line) for line in shown(page).splitlines()]
    # The words of the system are not ours.
    assert [line for line in lines if not re.search("connection|running on that", line)] == wording
    assert page.count("did not answer") >= 2  # the problem and the row


def test_a_slow_shard(shards: None, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview counts none of its queues, and has no charts of it."""
    fill()
    monkeypatch.setattr(overview_page, "rates", slow_on_other(rates))
    page = shown(body(admin_client, url("overview")))
    [line] = [each for each in page.splitlines() if each.startswith("mail")]
    assert "without other | 1 | 2 </admin" in line
    assert "shard=other" not in line
    monkeypatch.setattr(overview_page, "series", slow_on_other(series))
    page = body(admin_client, url("overview"), part="charts", span="day")
    assert "The database other did not answer: it took longer than 1 s." in page
    assert "The database default" not in page


def test_the_charts_are_of_all_shards(one_is_down: None, admin_client: Client) -> None:
    now = server_now("default")
    for alias, done in zip(BOTH, (3, 4), strict=True):
        connections[alias].ensure_connection()
        figures.count(connections[alias].connection, [5], done, at=now.isoformat())
    page, whole = (body(admin_client, url("overview"), **query) for query in ({"part": "charts"}, {}))
    for text in (page, whole):
        ran = text.split('id="pgqueue-throughput"')[1].split("</figure>")[0]
        rows = [re.findall(r'<td data-value="([^"]*)"', row) for row in ran.split("</tr>")]
        assert [row for row in rows if row and set(row) != {"0"}] == [["0", "0", "7"]]
        assert '<p class="pgqueue-slow"' in text
    assert page.count("The database down did not answer") == 1


def test_the_problems_lead_to_their_shards(shards: None, admin_client: Client) -> None:
    Queue.objects.using("other").create(name="mail")
    Job.objects.using("other").bulk_create([JobFactory.build(id=1, queue_name="mail")])
    pause(queue="mail", reason="a <b>", using="other")
    pause(task="shop.tasks.send", using="other")
    page = body(admin_client, url("overview"))
    for each in Pause.objects.using("other"):
        assert f'href="{url("change", each.pk, model="pause")}?shard=other"' in page
    assert "&lt;a href" not in page
    assert "a &lt;b&gt;" in page


def test_a_page_and_its_links_show_the_shard_of_its_address(shards: None, admin_client: Client) -> None:
    fill()
    Queue.objects.using("other").create(name="only-there")
    page = body(admin_client, url("overview"), shard="other")
    assert "app-other" in page
    assert "app-default" not in page
    for model, there in (("queue", "only-there"), ("worker", "app-other")):
        assert there in body(admin_client, url("changelist", model=model), shard="other")
        assert there not in body(admin_client, url("changelist", model=model), shard="default")
    assert 'data-pgqueue-source="?part=now&amp;shard=other"' in page
    for model in ("queue", "worker", "job"):
        assert f'href="{url("changelist", model=model)}?shard=other"' in page
    assert f'href="{url("overview")}?shard=all"' in page
    assert 'href="/admin/logout' not in page or "logout/?shard" not in page
    jobs = body(admin_client, url("changelist"), shard="other", status="pending")
    assert f'href="{url("change", 3)}?shard=other"' in jobs or f"{url('change', 3)}?" in jobs
    assert '<input type="hidden" name="shard" value="other">' in jobs
    assert "shard=default" in jobs
    assert "shard=other" in body(admin_client, url("change", 3), shard="other")


def cells(page: str, column: str) -> list[str]:
    found = re.findall(rf'<t[dh] class="field-{column}\b[^>]*>(.*?)</t[dh]>', page, re.DOTALL)
    return [" ".join(re.sub("<[^>]*>", " ", each).split()) for each in found]


def told(page: str) -> str:
    """Return what a reader sees in the rows of a list, without ids and ages."""
    return re.sub(r"\b\d s\b", "<age>", re.sub(r":\d+\]", ":<id>]", steady(rows_of(page))))


MERGED = ("worker", "limit", "pause", "schedule")


def test_queues_of_all_shards_add_up_and_say_without_which(
    one_is_down: None, admin_client: Client, wording: Any
) -> None:
    fill()
    Queue.objects.using("other").create(name="only-there", retention=timedelta(days=1))
    pause(queue="mail", reason="quota", using="other")
    page = body(admin_client, url("changelist", model="queue"))
    assert "The database down did not answer" in page
    assert "The sums are without down." in page
    assert told(page) == wording


def test_rows_of_all_shards_are_merged_by_name(one_is_down: None, admin_client: Client, wording: Any) -> None:
    fill()
    for alias, name in (("default", "crm"), ("other", "bank"), ("other", "crm")):
        set_limit(name=name, concurrency=2, using=alias)
        pause(task=f"shop.{name}.send", using=alias)
    for alias in BOTH:
        Schedule(name=f"nightly-{alias}", task_path=noop.module_path, cron="0 6 * * *").save(using=alias)
    pages = {model: body(admin_client, url("changelist", model=model)) for model in MERGED}
    assert all("The database down did not answer" in page for page in pages.values())
    assert {model: told(page) for model, page in pages.items()} == wording
    Worker.objects.all().delete()
    page = body(admin_client, url("changelist", model="schedule"), o="-1")
    assert cells(page, "shards") == ["other", "default"]
    assert "default: Schedules stand still" in page


def test_a_merged_list_has_pages(shards: None, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        set_limit(name=f"limit{number}", concurrency=1, using=BOTH[number % 2])
    monkeypatch.setattr(LimitAdmin, "list_per_page", 3)
    address, seen = url("changelist", model="limit"), []
    for number in (1, 2, 3):
        page = body(admin_client, address, p=str(number))
        seen += cells(page, "named")
        assert "7 limits" in page
    assert seen == [f"limit{number}" for number in range(7)]


def test_batches_are_in_order(shards: None, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.now()
    for number in range(1, 6):
        batch = Batch.open(f"batch{number}", using=BOTH[number % 2])
        rows = JobBatch.objects.using(batch.database)
        rows.filter(pk=batch.id).update(created_at=now - timedelta(hours=9 - number))
    monkeypatch.setattr(BatchAdmin, "list_per_page", 3)
    page = body(admin_client, url("changelist", model="jobbatch"))
    assert cells(page, "named") == ["batch5", "batch4", "batch3"]
    assert cells(page, "shards") == ["other", "default", "other"]
    [older] = re.findall(r'<a href="([^"]*)" rel="next"', page)
    page = admin_client.get(f"{url('changelist', model='jobbatch')}{html.unescape(older)}").content.decode()
    assert cells(page, "named") == ["batch2", "batch1"]


def test_an_action_on_pauses_asks_once_for_all_shards(shards: None, admin_client: Client) -> None:
    pauses = [pause(task="shop.tasks.send", using=alias) for alias in BOTH]
    keys = [f"{alias}:{each.pk}" for alias, each in zip(BOTH, pauses, strict=True)]
    posted = {"action": "resume_selected", "_selected_action": keys}
    page = admin_client.post(url("changelist", model="pause"), posted)
    assert [Pause.objects.using(alias).count() for alias in BOTH] == [1, 1]
    assert "default: <strong>task shop.tasks.send</strong>" in page.content.decode()
    answer = admin_client.post(url("changelist", model="pause"), hidden_fields(page.content.decode()))
    assert [Pause.objects.using(alias).count() for alias in BOTH] == [0, 0]
    said = [str(each) for each in get_messages(answer.wsgi_request)]
    assert said == ["default: 1 pause has ended.", "other: 1 pause has ended."]


def test_an_action_names_a_shard_that_is_down_and_goes_on(one_is_down: None, admin_client: Client) -> None:
    made = pause(task="shop.tasks.send", using="other")
    fields = {"other|confirmed": "1", "other|action": "resume_selected", "other|_selected_action": made.pk}
    fields |= {"down|confirmed": "1", "down|action": "resume_selected", "down|_selected_action": "1"}
    answer = admin_client.post(url("changelist", model="pause"), fields)
    assert not Pause.objects.using("other").exists()
    said = sorted(str(each) for each in get_messages(answer.wsgi_request))
    assert said[0].startswith("The database down did not answer: ")
    assert said[1:] == ["other: 1 pause has ended."]


def test_the_banner_and_the_warnings_of_a_list_name_their_shard(shards: None, admin_client: Client) -> None:
    pause(everything=True, reason="move", using="other")
    Job.objects.using("other").bulk_create([JobFactory.build(id=1, queue_name="mail")])
    page = shown(body(admin_client, url("changelist", model="worker")))
    assert "other: Everything is paused: move." in page
    assert "other: Jobs are waiting, and no worker is alive." in page
    assert "default: Jobs are waiting" not in page
    for page in ("jobstat", "queue"):
        assert "&lt;a href" not in body(admin_client, url("changelist", model=page))


def test_the_filters_of_jobs_offer_the_names_of_all_shards(shards: None, admin_client: Client) -> None:
    for alias, queue in zip(BOTH, ("mail", "only-there"), strict=True):
        tenant = "acme" if alias == "other" else None
        Job.objects.using(alias).bulk_create([JobFactory.build(id=1, queue_name=queue, tenant=tenant)])
    page = body(admin_client, url("changelist"))
    for query in ("queue=mail", "queue=only-there", "tenant=acme"):
        assert f'href="?{query}"' in page
    assert '<option value="queue:only-there">' in page


def test_all_jobs_of_all_shards(shards: None, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    spread(7)
    address = f"{url('changelist')}?queue=mail"
    posted = {"action": "cancel_jobs", "select_across": "1", "_selected_action": "default:2"}
    page = admin_client.post(address, posted).content.decode()
    assert "default: 3 jobs are selected." in page
    assert "other: 4 jobs are selected." in page
    monkeypatch.setattr(actions, "FIRST_COUNTED", (1,))
    page = admin_client.post(address, posted).content.decode()
    assert all(f"{alias}: 1+ jobs are selected." in page for alias in BOTH)
    page = admin_client.post(address, {**hidden_fields(page), "count": "all"}).content.decode()
    assert "default: 3 waiting jobs would be cancelled." in page
    assert "other: 4 waiting jobs would be cancelled." in page
    assert 'name="count"' not in page
    admin_client.post(address, hidden_fields(page))
    assert [Job.objects.using(alias).filter(status="cancelled").count() for alias in BOTH] == [3, 4]


@pytest.fixture
def failed(one_is_down: None) -> None:
    """A group of failures on two shards, and one on `other`, of whose jobs there are 2 and 1."""
    failure("g", alias="other", error_class="shop.Busy")
    for alias, count in zip(BOTH, (1, 2), strict=True):
        down = {"task_path": f"shop.{alias}", "error_class": "shop.Down", "message": alias}
        failure(alias=alias, failed=count, **down)
        jobs = [JobFactory.build(id=10 + n, failed=True, error_fingerprint="f") for n in range(count)]
        Job.objects.using(alias).bulk_create(jobs)


def test_the_failures_of_all_shards_add_up(failed: None, admin_client: Client, wording: Any) -> None:
    page = body(admin_client, url("failures"))
    assert "The database down did not answer" in page
    assert told(page) == wording
    assert "shop.default" not in body(admin_client, url("failures"), shard="other")


def test_a_group_is_retried_and_muted_on_every_shard_that_has_it(failed: None, admin_client: Client) -> None:
    page = body(admin_client, url("failure", "f"))
    assert "The database down did not answer" in page
    assert "3 jobs have failed" in page
    form = page.split('value="Retry the failed jobs"')[0].rsplit("<form", 1)[1]
    address = html.unescape(form.split('action="')[1].split('"')[0])
    page = admin_client.post(address, hidden_fields(form)).content.decode()
    for said in ("default: 1 job is selected.", "other: 2 jobs are selected."):
        assert said in page
    answer = admin_client.post(address, hidden_fields(page))
    assert answer["Location"] == url("failure", "f")
    for alias in BOTH:
        assert {*Job.objects.using(alias).values_list("status", flat=True)} == {"pending"}
    admin_client.post(url("failure_mute", "f"), {"action": "mute"})
    assert all(FailureGroup.objects.using(alias).get(pk="f").muted_at for alias in BOTH)
    admin_client.post(f"{url('failure_mute', 'f')}?shard=other", {"action": "unmute"})
    assert [bool(FailureGroup.objects.using(alias).get(pk="f").muted_at) for alias in BOTH] == [True, False]


def test_the_tasks_of_all_shards_add_up(one_is_down: None, admin_client: Client, wording: Any) -> None:
    for alias, counts in zip(BOTH, ((2, 0), (3, 4)), strict=True):
        for task, count in zip(("shop.send", "shop.only"), counts, strict=True):
            if count:
                at, ran = timezone.now() - timedelta(minutes=2), classes(c10=count)
                row = JobStatFactory.build(task_path=task, minute=at, done=count, run_histogram=ran)
                JobStat.objects.using(alias).bulk_create([row])
    page = body(admin_client, url("changelist", model="jobstat"), q="shop.")
    assert "The database down did not answer" in page
    assert told(page) == wording


def test_each_shard_is_sent_the_statements_of_the_page_of_one(shards: None, admin_client: Client) -> None:
    fill()
    lists = ("job", "queue", "worker", "jobstat", "jobbatch", "schedule", "limit", "pause")
    addresses = [url("overview"), url("failures"), *(url("changelist", model=model) for model in lists)]
    for address in addresses:
        counts = []
        for shard in ("other", ""):
            with CaptureQueriesContext(connections["other"]) as sent:
                body(admin_client, address, **({"shard": shard} if shard else {}))
            counts.append(len([each for each in sent if "SAVEPOINT" not in each["sql"]]))
        one, part_of_all = counts
        assert 0 < part_of_all <= one + 2, address  # of ask_all: the time limit, and its end


def test_a_button_changes_the_shard_of_the_page(shards: None, admin_client: Client) -> None:
    fill()
    answer = admin_client.post(f"{url('cancel', 3)}?shard=other")
    assert "shard=other" in answer["Location"]
    assert Job.objects.using("other").get(pk=3).status == "cancelled"
    address = f"{url('overview')}?shard=other"
    admin_client.post(address, {"queue": "mail", "button": "pause"})
    assert [Pause.objects.using(alias).count() for alias in BOTH] == [0, 1]


def test_everything_is_paused_on_all_shards(one_is_down: None, admin_client: Client) -> None:
    fill()
    answer = admin_client.post(url("overview"), {"queue": "*", "button": "pause", "reason": "move"})
    assert [Pause.objects.using(alias).get().reason for alias in BOTH] == ["move", "move"]
    [message] = [str(each) for each in get_messages(answer.wsgi_request)]
    assert message.startswith("Everything is paused on default, other. The database down did not answer: ")


def ids(page: str) -> list[str]:
    return re.findall(r'<t[dh] class="field-public_id[^>]*>(?:<a[^>]*>)?([^<]*)', page)


def test_jobs_are_merged(one_is_down: None, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the list, by time, and it goes on in each shard."""
    spread(7)
    monkeypatch.setattr(JobAdmin, "list_per_page", 3)
    address, seen = f"{url('changelist')}?", []
    while address:
        page = admin_client.get(address).content.decode()
        assert "The database down did not answer" in page
        seen.append(ids(page))
        older = re.search(r'<a href="([^"]*)" rel="next"', page)
        address = f"{url('changelist')}{html.unescape(older[1])}" if older else ""
    assert seen == [["other:7", "6", "other:5"], ["4", "other:3", "2"], ["other:1"]]
    page = body(admin_client, url("changelist"), status="pending")  # in the order in which they are due
    assert ids(page) == ["other:1", "2", "other:3"]
    id_link, task_link = re.findall(f'href="{url("change", 1)}[?]([^"]*)"', page)
    assert id_link == task_link
    assert "shard=other" in html.unescape(id_link).split("&")
    assert 'value="other:1"' in page
    assert 'value="default:2"' in page


def test_an_action_groups_the_jobs_by_shard(shards: None, admin_client: Client, wording: Any) -> None:
    spread(7)
    posted = {"action": "cancel_jobs", "_selected_action": ["other:7", "other:5", "default:6", "default:4"]}
    page = admin_client.post(url("changelist"), posted)
    assert page.status_code == 200
    assert shown(page.content) == wording
    admin_client.post(url("changelist"), hidden_fields(page.content.decode()))
    found = {
        alias: sorted(Job.objects.using(alias).filter(status="cancelled").values_list("pk", flat=True))
        for alias in BOTH
    }
    assert found == {"default": [4, 6], "other": [5, 7]}


def test_an_id_with_its_shard_leads_to_the_job(shards: None, admin_client: Client) -> None:
    spread(7)
    for shard in ("", "default", "all"):
        page = body(admin_client, url("changelist"), q="other:7", shard=shard)
        assert f"{url('change', 7)}?" in page
        assert "shard=other" in page
    assert "other" in body(admin_client, url("change", "other:7"))
    page = body(admin_client, url("changelist"), q="6")
    assert ids(page) == ["6"]


def test_a_page_of_one_that_does_not_answer(admin_client: Client) -> None:
    pages = (url("change", 5), url("changelist"), url("changelist", model="queue"), url("overview"))
    with sharded("down", "silent"):
        for alias, address in (*(("down", each) for each in pages), ("silent", url("overview"))):
            began = monotonic()  # the connect takes 2 s at most
            answer = admin_client.get(address, {"shard": alias})
            assert answer.status_code == 503
            assert monotonic() - began < 4
            assert f"The database {alias} did not answer" in answer.content.decode()


def test_no_page_of_all_shards_waits_for_one_that_is_silent(admin_client: Client) -> None:
    lists = (url("changelist", model=model) for model in ("job", "queue", "worker", "limit", "jobstat"))
    with sharded("silent"), patch.object(ask, "SECONDS", 0.3):
        for address in (*lists, url("failures"), url("overview")):
            began = monotonic()
            assert "The database silent did not answer" in body(admin_client, address)
            assert monotonic() - began < 4, address


def test_a_hand_over_leads_to_its_job_on_the_other_shard(shards: None, admin_client: Client) -> None:
    job = enqueue(noop.using(relay="other"))
    run_jobs()
    (there,) = Job.objects.using("other").all()
    page = body(admin_client, url("change", job.pk), shard="default")
    assert f'<a href="{url("change", there.pk)}?shard=other">other:{there.pk}</a>' in page
