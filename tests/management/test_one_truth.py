"""Each figure is the same on all surfaces, and a number with a link shows the same jobs."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
from django.test import Client
from prometheus_client import generate_latest

from django_pgqueue import pause, set_limit
from django_pgqueue.metrics import registry
from django_pgqueue.monitoring.depth import STATES
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory, ago
from tests.support.plans import LIVE, fill
from tests.support.sessions import Connection

from .test_subcommands import run

pytestmark = pytest.mark.django_db

ADMIN = "/admin/django_pgqueue/"
#: How many jobs are in each state, and have failed within 24 hours.
TRUTH = {
    "mail": {"ready": 5, "scheduled": 2, "retrying": 3, "blocked": 4, "running": 4, "failed": 2},
    "held": {"ready": 6, "scheduled": 0, "retrying": 0, "blocked": 0, "running": 0, "failed": 0},
}


@pytest.fixture(autouse=True)
def _jobs() -> None:
    mail = {"queue_name": "mail"}
    JobFactory.create_batch(4, **mail)
    JobFactory.create(**mail, status="retry", attempts=1)  # due
    JobFactory.create_batch(2, **mail, scheduled=True)
    JobFactory.create_batch(3, **mail, retrying=True)
    JobFactory.create_batch(3, **mail, status="blocked", waiting_reason="at most 1")
    JobFactory.create(**mail, status="blocked", waiting_reason="waits for job 1")
    # A worker may have claimed more short jobs than it has slots, and the jobs of a dead one run, too.
    worker = WorkerFactory.create(slots=2, heartbeat_at=ago(hours=-1))
    JobFactory.create_batch(3, **mail, running=True, worker=worker.pk)
    dead = WorkerFactory.create(slots=8, heartbeat_at=ago(hours=1))
    JobFactory.create(**mail, running=True, worker=dead.pk)
    JobFactory.create_batch(2, **mail, failed=True)
    JobFactory.create(**mail, failed=True, finished_at=ago(days=2))
    JobFactory.create_batch(7, **mail, done=True)
    JobFactory.create_batch(6, queue_name="held")
    pause(queue="held")
    for back in range(3):
        JobStatFactory.create(queue_name="mail", minute=ago(minutes=back), failed=9)


def of_states(queue: str) -> dict[str, int]:
    return {state: TRUTH[queue][state] for state in STATES}


def test_each_command_has_the_same_figures() -> None:
    for command in ("queues", "status", "stats"):
        found = json.loads(run(command, "--json"))
        for each in found if command == "queues" else found["queues"]:
            assert {state: each[state] for state in STATES} == of_states(each["queue_name"]), command
            if command == "queues":
                assert each["failed_in_24_hours"] == TRUTH[each["queue_name"]]["failed"]
    for given in (("queues",), ("status",), ("top", "--once"), ("stats",)):
        lines = run(*given).splitlines()
        [head] = [re.split(r"\s{2,}", line) for line in lines if "Ready" in line and "Retrying" in line]
        for queue in TRUTH:
            [row] = [re.split(r"\s{2,}", line) for line in lines if re.match(rf"{queue} ", line)]
            text = dict(zip(head, row, strict=False))
            assert {state: int(text[state.capitalize()]) for state in STATES} == of_states(queue), given


def test_metrics_and_health_have_the_same_figures() -> None:
    text = generate_latest(registry(["default"])).decode()
    for queue, truth in TRUTH.items():
        for state in STATES:
            sample = f'pgqueue_jobs{{database="default",queue="{queue}",state="{state}"}} {truth[state]}.0'
            assert sample in text
    health = json.loads(run("health", "--json"))
    assert (health["ready"], health["held"]) == (11, 6)


def test_the_overview_and_top_agree_about_all_queues(admin_client: Client) -> None:
    tiles = {tile["label"]: tile for tile in admin_client.get(f"{ADMIN}job/overview/").context["tiles"]}
    assert tiles["Ready"]["value"] == "11"
    assert "6 in paused queues" in tiles["Ready"]["note"]
    assert tiles["Running"]["value"] == "4"
    assert tiles["Running"]["note"].startswith("2 of 2 slots")
    assert tiles["Failed in the last hour"]["value"] == "2", "jobs, not attempts"
    assert re.search(r"Ready: +11,", run("top", "--once"))


def test_a_number_and_its_link_show_the_same_jobs(admin_client: Client) -> None:
    numbers: dict[str, set[int]] = {}  # by address: several pages have the same link
    for page in ("job/overview/", "queue/", "queue/mail/change/", "queue/held/change/"):
        text = unescape(admin_client.get(f"{ADMIN}{page}").content.decode())
        links = re.findall(
            r'<a [^>]*href="(/admin/django_pgqueue/job/\?[^"]+)"[^>]*>([\d,]+)(?: \w+)?<', text
        )
        assert len(dict(links)) >= {"queue/held/change/": 1}.get(page, 6)
        for address, number in links:
            numbers.setdefault(address, set()).add(int(number.replace(",", "")))
    for address, shown in numbers.items():
        assert shown == {len(admin_client.get(address).context["cl"].result_list)}, address


def test_beyond_the_limit_no_surface_shows_unknown_digits(one: Connection, admin_client: Client) -> None:
    """15,000 more jobs: a list says that there are more, and the metrics count them all."""
    fill(one, LIVE, 15_000, queue_name="'held'", limit_key="'crm/7'", wait_position="n",
         run_after="clock_timestamp() - interval '1 hour'")  # fmt: skip
    set_limit(name="crm", concurrency=1)
    set_limit(queue="held", concurrency=1)
    text = admin_client.get(f"{ADMIN}job/overview/").content.decode()
    assert "held: paused, and 5,000+ jobs wait" in run("status")
    assert "5,000+ in paused queues" in text
    health, more = json.loads(run("health", "--json")), ["ready", "held"]
    assert (health["ready"], health["held"], health["more"]) == (5_000, 5_000, more)
    of_limits = {each["name"]: each for each in json.loads(run("limits", "--json"))}
    for name in ("crm", "held"):
        assert (of_limits[name]["waiting"], of_limits[name]["more"]) == (5_000, ["waiting"])
    assert run("limits").count("5,000+") == 2
    [held] = [each for each in json.loads(run("queues", "--json")) if each["queue_name"] == "held"]
    assert (held["ready"], held["more"]) == (5_000, ["ready"])
    metrics = generate_latest(registry(["default"])).decode()
    assert 'pgqueue_jobs{database="default",queue="held",state="ready"} 15006.0' in metrics


def test_large_counts_have_separators() -> None:
    JobStatFactory.create(queue_name="mail", minute=ago(minutes=5), failed=3000)
    assert "3,027 jobs failed in the last hour, 0 in the hour before" in run("status")
