"""The examples of workflows, those of Celery's canvas beside them, and the workflow of the tutorial."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from importlib import import_module, reload
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from django_pgqueue import Batch, enqueue
from django_pgqueue.models import Job
from django_pgqueue.models.changes import run_now
from tests.admin.helpers import drawing_of

from .shop import DOCS, EXAMPLES, ask, example, fresh, in_shop, run, run_attempts, statements, work

pytestmark = in_shop


@pytest.fixture
def flows(shop: None) -> Iterator[Any]:
    found = example("workflows")
    yield found
    found.PUBLISHED.clear()
    found.MAILS.clear()


def test_a_job_after_others(flows: Any) -> None:
    job = flows.import_prices()
    assert job.waiting_reason.startswith("waits for job")
    path = "shop.workflows.read_prices"
    parents = [(pk, path, "pending", "hold") for pk in job.parent_ids]
    assert ask(statements("parents").replace("57", str(job.pk))) == parents
    assert run(job).result == 4
    assert list(flows.PUBLISHED[0]) == ["north-pear", "north-plum", "south-pear", "south-plum"]
    assert run(flows.fulfill(5)[-1]).result == "packed box for 5, with post"
    for supplier, status, expected in (("north", "done", "0 of 1"), ("nobody", "cancelled", "1 of 1")):
        _, publish, tell = flows.import_and_tell(supplier, "ann@example.com")
        work()
        assert (fresh(publish).status, fresh(tell).status) == (status, "done")
        assert flows.MAILS[-1] == f"ann@example.com: {expected} have failed"


def test_a_batch_and_what_comes_after_it(flows: Any) -> None:
    batch = flows.send_to_all([12, 13, 14])
    work()
    assert sorted(flows.MAILS) == ["newsletter for 12", "newsletter for 14", "newsletter: failed"]
    assert batch.counts() == (3, 2, 1, 0)
    assert flows.send_to_all([]).outcome == "done"
    work()
    assert sorted(flows.MAILS)[-2:] == ["newsletter: done", "newsletter: failed"]
    assert flows.MAILS.count("all have been sent") == 1
    flows.MAILS.clear()
    ask(statements("batch"))
    work()
    assert sorted(flows.MAILS) == [*(f"newsletter for {n}" for n in (1, 2, 3)), "newsletter: done"]


def test_a_batch_that_grows(flows: Any) -> None:
    batch = flows.index_catalog()
    work()
    assert batch.counts() == (7, 7, 0, 0)
    late = flows.import_lines(["north", "south"])
    assert flows.add_late(late, "west")
    work()
    assert late.counts() == (3, 3, 0, 0)
    assert not flows.add_late(late, "east")


def test_an_album_is_drawn_one_by_one_or_folded(client: Client) -> None:
    def boxes(page: str, job: Job) -> list[tuple[str, str]]:
        shown = client.get(reverse(f"admin:django_pgqueue_job_{page}", args=[job.pk])).content.decode()
        return [(node["label"], node["text"]) for node in drawing_of(shown)["nodes"]]

    client.force_login(User.objects.create_superuser("root"))
    album = example("album")
    small = album.publish_album("rome", [1, 2])
    batch = small.parent_ids[0]
    members = Job.objects.filter(batch_id=batch).order_by("pk").values_list("pk", flat=True)
    assert boxes("change", small) == [
        *(("resize", f"#{pk} · pending") for pk in members),
        ("rome", f"#{batch} · 2 pending"),
        ("build_page", f"#{small.pk} · blocked"),
        ("announce", f"#{small.pk + 1} · blocked"),
    ]
    large = album.publish_album("oslo", list(range(298)))
    labels = [name for name, _state in boxes("workflow", large)]
    assert labels == ["resize × 298", "oslo", "build_page", "announce"]


# --- Celery's canvas


@pytest.fixture
def canvas(shop: None) -> Iterator[Any]:
    found = example("canvas")
    yield found
    found.REPORTS.clear()


@pytest.fixture
def celery(shop: None, own_celery: None) -> Iterator[Any]:
    """The examples of Celery, which run the tasks at once."""
    from celery import Celery
    from celery.app import builtins

    reload(builtins)  # which adds its own tasks again, and not the shared tasks of other tests
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=True)
    app.conf.task_always_eager = True
    yield import_module("shop.celery_canvas")
    app.close()
    sys.modules.pop("shop.celery_canvas", None)


def results_of(batch: Batch) -> list[Any]:
    work()
    return [job.result for job in batch.jobs.order_by("pk")]


def test_the_recipes_do_what_celery_does(canvas: Any, celery: Any) -> None:
    assert run(canvas.in_sequence()).result == celery.in_sequence().get() == 16
    assert results_of(canvas.in_parallel()) == celery.in_parallel().get() == [2 * n for n in range(10)]
    assert run(canvas.sum_of_all()).result == celery.sum_of_all().get() == 90
    assert results_of(canvas.in_chunks()) == celery.in_chunks().get()
    assert run(canvas.in_one_task()).result == celery.in_one_task().get() == [4, 8]
    assert celery.count_down.apply(args=[3]).get() == "zero"
    countdown = canvas.count_down_from(3)
    work()
    assert countdown.counts() == (4, 4, 0, 0)


def test_callbacks(canvas: Any, celery: Any) -> None:
    assert celery.with_callbacks().get() == 4
    canvas.with_callbacks()
    work()
    assert [other.result for other in Job.objects.order_by("pk")] == [4, 20, None]
    assert canvas.REPORTS == []
    failing = canvas.enqueue(canvas.add, 2, "2")
    canvas.enqueue(canvas.report.using(after=failing, if_failed="run"))
    work()
    assert canvas.REPORTS == [
        "shop.canvas.add has failed: unsupported operand type(s) for +: 'int' and 'str'"
    ]


# --- The tutorial


class Website:
    """The supplier's pages. It notes which ones were downloaded, and fails once at the page `broken`."""

    def __init__(self, download: Any) -> None:
        self.download = download
        self.seen: list[tuple[str, int]] = []
        self.broken: tuple[str, int] | None = None

    def __call__(self, supplier: str, page: int) -> dict[str, int]:
        if (supplier, page) == self.broken:
            raise ConnectionError("the web site does not answer")
        self.seen.append((supplier, page))
        prices: dict[str, int] = self.download(supplier, page)
        return prices

    def pages(self, supplier: str = "north") -> list[int]:
        return [page for seen, page in self.seen if seen == supplier]


@pytest.fixture
def website(shop: None, monkeypatch: pytest.MonkeyPatch) -> Website:
    source = example("prices.download")
    monkeypatch.setattr(source, "SECONDS", 0)
    website = Website(source.download)
    for name in ("plain", "resuming", "approved", "tracked"):
        monkeypatch.setattr(example(f"prices.{name}"), "download", website)
    return website


def breaks_once(job: Job, website: Website) -> Job:
    """Run the job with a web site that fails at page 4, and then again with one that works."""
    website.broken = ("north", 4)
    assert run(job).status == "retry"
    website.broken = None
    return run_attempts(job, 1)


def prices(**conditions: Any) -> int:
    count: int = example("models").Price.objects.filter(**conditions).count()
    return count


def test_a_plain_job_starts_again(website: Website) -> None:
    job = breaks_once(shell("plain_job"), website)
    assert (job.status, job.result, prices()) == ("done", 15, 15)
    assert website.pages() == [1, 2, 3, 1, 2, 3, 4, 5]


def test_a_job_with_steps_continues(website: Website) -> None:
    job = breaks_once(enqueue(example("prices.resuming").import_prices, "north"), website)
    assert (job.status, job.result, prices()) == ("done", 15, 15)
    assert website.pages() == [1, 2, 3, 4, 5]
    assert [entry["name"] for entry in job.steps or []] == [
        "count", "page 1", "page 2", "page 3", "page 4", "page 5", "save",
    ]  # fmt: skip


def test_a_job_waits_for_an_approval_and_sleeps(website: Website) -> None:
    approved = example("prices.approved")
    job = run(enqueue(approved.import_prices, "north"))
    assert job.waiting_reason == promised("waits for the event")
    assert prices(public=True) == 0
    assert approved.approve(job.pk, "ann") is True
    assert approved.approve(job.pk, "bob") is False
    assert run(job).waiting_reason == promised("sleeps")
    assert run_attempts(job, 1).result == "approved by ann"
    assert prices(public=True) == 15
    assert website.pages() == [1, 2, 3, 4, 5]


def test_a_job_follows_another(website: Website) -> None:
    published = example("prices.following").start("north")
    (parent,) = fresh(published).parent_ids or []
    assert fresh(published).status == "blocked"
    assert fresh(published).waiting_reason == f"waits for job {parent}"
    assert run(published).waiting_reason == promised("waits for the event")
    example("prices.approved").approve(published.pk, "ann")
    run(published)
    assert run_attempts(published, 1).result == "15 prices, approved by ann"


def test_a_batch_of_suppliers_whose_callback_waits_for_a_failed_one(website: Website) -> None:
    website.broken = ("south", 2)
    suppliers = ["north", "south", "west"]
    batch = example("prices.batched").start(suppliers)
    report, publish = Job.objects.exclude(batch_id=batch.id).order_by("pk")
    work()
    (failing,) = batch.jobs.filter(status="retry")
    for _ in range(4):
        run_now(failing)
        work()
    batch.refresh()
    counts = batch.counts()
    assert (batch.outcome, counts.done, counts.failed) == ("failed", 2, 1)
    assert fresh(report).result == "2 suppliers imported, 1 failed"
    assert fresh(publish).status == "blocked"
    website.broken = None
    assert batch.retry_failed() == 1
    work()
    assert website.pages("south") == [1, 2, 3, 4, 5]
    assert fresh(publish).waiting_reason == promised("waits for the event")
    example("prices.approved").approve(publish.pk, "ann")
    work()
    assert run_attempts(publish, 1).result == "45 prices, approved by ann"
    assert Batch.get(batch.id).outcome == "done"


def test_a_job_reports_how_far_it_is(website: Website) -> None:
    website.broken = ("north", 4)
    job = run(enqueue(example("prices.tracked").import_prices, "north"))
    assert tuple(job.progress or ()) == (3, 5, "north")
    website.broken = None
    assert run_attempts(job, 1).result == 15
    assert website.pages() == [1, 2, 3, 4, 5]


def test_the_shells_of_the_tutorial(website: Website, capsys: pytest.CaptureFixture[str]) -> None:
    job = shell("approve")
    assert capsys.readouterr().out.splitlines() == ["True", "False"]
    assert run(job).waiting_reason == promised("sleeps"), "the event came before the job waited for it"
    shell("start_batch")
    assert "added=3" in capsys.readouterr().out
    blocked = Job.objects.filter(status="blocked").order_by("pk").values_list("pk", flat=True)
    assert [row[0] for row in ask(statements("why/waiting"))] == [job.pk, *blocked]


def test_the_pages_show_each_model_that_the_tutorial_uses() -> None:
    pages = [(DOCS / "tutorial" / f"{name}.md").read_text() for name in ("quickstart", "workflow")]
    shown = {name for page in pages for name in re.findall(r"^class (\w+)\(models\.Model", page, re.M)}
    used: set[str] = set()
    for path in (EXAMPLES / "shop" / "prices").glob("*.py"):
        for names in re.findall(r"^from \.\.models import (.+)", path.read_text(), re.M):
            used |= set(names.split(", "))
    assert used >= {"Price"}
    assert used <= shown


def shell(name: str) -> Job:
    """Run what the reader types into a shell. Return the newest job."""
    runpy.run_path(str(EXAMPLES / "prices" / f"{name}.py"))
    return Job.objects.latest("pk")


def promised(words: str) -> str:
    """The reason that the tutorial promises, which begins with these words."""
    page = (DOCS / "tutorial" / "workflow.md").read_text()
    reasons = [part for part in page.split("`") if part.startswith(words)]
    assert len(reasons) == 1, reasons
    return reasons[0]
