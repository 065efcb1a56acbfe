"""Commands over several shards: one answer, and those that did not answer are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_pgqueue.models import Job, Limit, Pause
from django_pgqueue.models.job import Status
from tests.support import schedules
from tests.support.databases import sharded
from tests.support.factories import QueueFactory, WorkerFactory, spread

BOTH = ["default", "other"]
pytestmark = pytest.mark.django_db(databases=BOTH)


@pytest.fixture
def shards() -> Iterator[None]:
    with sharded():
        yield


@pytest.fixture
def one_is_down() -> Iterator[None]:
    with sharded("down"):
        yield


def run(*arguments: str, **options: Any) -> str:
    """Return what the command prints, and below it the error with which it ends."""
    out = StringIO()
    try:
        call_command("pgqueue", *arguments, stdout=out, **options)
    except CommandError as error:
        return f"{out.getvalue()}Error {error.returncode}: {error}".split("connection to server")[0]
    return out.getvalue()


def read(*arguments: str) -> Any:
    """Return the document that the command prints, whatever it says below it."""
    out = StringIO()
    with suppress(CommandError):
        call_command("pgqueue", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def fill() -> None:
    spread(6)
    for alias in BOTH:
        WorkerFactory.build(id=5, host=f"app-{alias}", pid=7, slots=4).save(using=alias, force_insert=True)


@pytest.mark.parametrize(
    "arguments",
    ["status", "queues", "workers", "pauses", "limits", "health", "failures", "jobs", "top --once"],
)
def test_reads_all_shards_and_names_the_one_that_is_down(
    one_is_down: None, wording: Any, arguments: str
) -> None:
    fill()
    said = run(*arguments.split())
    assert [line for line in said.splitlines() if "Subcommands:" not in line] == wording


def test_one_shard(shards: None) -> None:
    fill()
    assert "app-other" in run("workers", "--database", "other")
    assert "app-default" not in run("workers", "--database", "other")


def test_json_has_the_shard(one_is_down: None) -> None:
    fill()
    assert "Error 1: The database down did not answer" in run("workers", "--json")
    hosts = [(row["shard"], row["host"]) for row in read("workers")]
    assert hosts == [("default", "app-default"), ("other", "app-other")]
    document = read("status")
    assert [each["shard"] for each in document["shards"]] == BOTH
    assert [*document["unanswered"]] == ["down"]


def test_jobs_go_on_after_a_position_of_each_shard(shards: None) -> None:
    fill()
    seen: list[tuple[str, int]] = []
    after: list[str] = []
    while True:
        document = read("jobs", "--limit", "2", *after)
        seen += [(job["shard"], job["id"]) for job in document["jobs"]]
        if document["next"] is None:
            break
        after = ["--after", document["next"]]
    assert seen == [(BOTH[number % 2], number) for number in range(6, 0, -1)]
    assert run("jobs", "--quiet").split() == ["6", "other:5", "4", "other:3", "2", "other:1"]


def test_ids_of_several_shards(shards: None, wording: Any) -> None:
    fill()
    said = [run("cancel", "2", "other:3", "--yes"), run("cancel", "2", "other:3", "--yes")]
    assert Job.objects.get(pk=2).status == Job.objects.using("other").get(pk=3).status == Status.CANCELLED
    said.append(run("jobs", "4", "other:5", "--quiet"))
    assert run("why", "other:1").startswith("Job 1 (shop.tasks.send): ")
    assert said == wording


def test_a_change_of_all_that_match(one_is_down: None, wording: Any) -> None:
    fill()
    said = [run("cancel", "--queue", "mail", "--dry-run"), run("cancel", "--queue", "mail", "--yes")]
    assert said == wording
    for alias in BOTH:
        assert not Job.objects.using(alias).exclude(status=Status.CANCELLED).exists()


def test_pause_and_resume(one_is_down: None, wording: Any) -> None:
    for alias in BOTH:
        QueueFactory.build(name="mail").save(using=alias)
    said = [run("pause", "--queue", "mail", "--author", "ann")]
    assert [Pause.objects.using(alias).get().author for alias in BOTH] == ["ann", "ann"]
    Pause.objects.using("other").all().delete()
    said += [run("resume", "--queue", "mail"), run("resume", "--queue", "mail")]
    assert not Pause.objects.exists()
    assert said == wording
    assert not Limit.objects.exists()


def test_the_schedules_of_all_shards_are_listed_and_one_is_paused_in_its_own(one_is_down: None) -> None:
    for alias in BOTH:
        schedules.create(f"of-{alias}", using=alias)
    said = run("schedules")
    listed = [line.split()[:2] for line in said.splitlines() if " of-" in line]
    assert listed == [["default", "of-default"], ["other", "of-other"]]
    assert "The database down did not answer" in said
    refused = run("schedules", "pause", "of-other")
    assert "There is no schedule 'of-other' in the database 'default'" in refused
    assert run("schedules", "pause", "of-other", database="other") == "of-other is paused.\n"


def test_the_hint_for_autoscalers_is_the_sum(shards: None) -> None:
    fill()
    assert [(row["queue_name"], row["ready"]) for row in read("scale-hint")["queues"]] == [("mail", 6)]
