"""The states of the tutorial's workflow, in the order of its parts."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest
from django.db import connections

from django_pgqueue import Batch, enqueue
from django_pgqueue.models import Job
from django_pgqueue.models.changes import run_now

from .shop import DOCS, EXAMPLES, example, fresh, in_shop, run, statements, work


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
    run_now(job)
    return run(job)


def prices(**conditions: Any) -> int:
    count: int = example("models").Price.objects.filter(**conditions).count()
    return count


@in_shop
def test_a_plain_job_starts_again(website: Website) -> None:
    job = breaks_once(shell("plain_job"), website)
    assert (job.status, job.result, prices()) == ("done", 15, 15)
    assert website.pages() == [1, 2, 3, 1, 2, 3, 4, 5]


@in_shop
def test_a_job_with_steps_continues(website: Website) -> None:
    job = breaks_once(enqueue(example("prices.resuming").import_prices, "north"), website)
    assert (job.status, job.result, prices()) == ("done", 15, 15)
    assert website.pages() == [1, 2, 3, 4, 5]
    assert [entry["name"] for entry in job.steps or []] == [
        "count", "page 1", "page 2", "page 3", "page 4", "page 5", "save",
    ]  # fmt: skip


@in_shop
def test_a_job_waits_for_an_approval_and_sleeps(website: Website) -> None:
    approved = example("prices.approved")
    job = run(enqueue(approved.import_prices, "north"))
    assert job.waiting_reason == promised("waits for the event")
    assert prices(public=True) == 0
    assert approved.approve(job.pk, "ann") is True
    assert approved.approve(job.pk, "bob") is False
    assert run(job).waiting_reason == promised("sleeps")
    run_now(job)
    assert run(job).result == "approved by ann"
    assert prices(public=True) == 15
    assert website.pages() == [1, 2, 3, 4, 5]


@in_shop
def test_a_job_follows_another(website: Website) -> None:
    published = example("prices.following").start("north")
    (parent,) = fresh(published).parent_ids or []
    assert fresh(published).status == "blocked"
    assert fresh(published).waiting_reason == f"waits for job {parent}"
    assert run(published).waiting_reason == promised("waits for the event")
    example("prices.approved").approve(published.pk, "ann")
    run(published)
    run_now(published)
    assert run(published).result == "15 prices, approved by ann"


@in_shop
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
    run_now(publish)
    assert run(publish).result == "45 prices, approved by ann"
    assert Batch.get(batch.id).outcome == "done"


@in_shop
def test_a_job_reports_how_far_it_is(website: Website) -> None:
    website.broken = ("north", 4)
    job = run(enqueue(example("prices.tracked").import_prices, "north"))
    assert tuple(job.progress or ()) == (3, 5, "north")
    website.broken = None
    run_now(job)
    assert run(job).result == 15
    assert website.pages() == [1, 2, 3, 4, 5]


@in_shop
def test_the_shells_of_the_tutorial(website: Website, capsys: pytest.CaptureFixture[str]) -> None:
    job = shell("approve")
    assert capsys.readouterr().out.splitlines() == ["True", "False"]
    assert run(job).waiting_reason == promised("sleeps"), "the event came before the job waited for it"
    shell("start_batch")
    assert "added=3" in capsys.readouterr().out
    assert [row[0] for row in waiting()] == [job.pk, *blocked()]


def test_the_pages_show_each_model_that_the_tutorial_uses() -> None:
    models, page = EXAMPLES / "shop" / "models.py", (DOCS / "tutorial" / "workflow.md").read_text()
    quickstart = models.read_text().split("text =")[0]  # up to here, the quickstart shows it
    shown = {
        *re.findall(r"^class (\w+)", quickstart, re.M),
        *re.findall(r"models\.py\n:pyobject: (\w+)", page),
    }
    used: set[str] = set()
    for path in (EXAMPLES / "shop" / "prices").glob("*.py"):
        for names in re.findall(r"^from \.\.models import (.+)", path.read_text(), re.M):
            used |= set(names.split(", "))
    assert used >= {"Price"}
    assert used <= shown


def waiting() -> list[Any]:
    """What the statement of the tutorial finds."""
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("why/waiting"))
        return list(cursor.fetchall())


def blocked() -> list[int]:
    return list(Job.objects.filter(status="blocked").order_by("pk").values_list("pk", flat=True))


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
