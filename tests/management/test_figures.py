"""``manage.py pgqueue stats``, ``health`` and ``metrics``."""

from __future__ import annotations

import json
import os
import re
import signal
from io import StringIO
from threading import Thread
from typing import Any
from urllib.request import urlopen

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.utils import translation
from prometheus_client import make_wsgi_app

from django_pgqueue.management.subcommands.operating import exporter, serve
from django_pgqueue.metrics import registry
from django_pgqueue.models import Queue
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory
from tests.support.failures import fold, note
from tests.support.statistics import classes

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("pgqueue", *arguments, stdout=out)
    return out.getvalue()


def test_stats() -> None:
    assert run("stats").splitlines() == [
        "1 problem: no worker claims jobs", "", "No queue has live jobs.", "", "Nothing ran in the last 1h.",
    ]  # fmt: skip
    JobFactory.create(queue_name="mail")
    WorkerFactory.create()
    JobStatFactory.create(queue_name="mail", task_path="shop.tasks.send", done=100, failed=2,
                          wait_histogram=classes(c1=102), run_histogram=classes(c10=101, c23=1))  # fmt: skip
    verdict, _, *rest = run("stats", "--queue", "mail").splitlines()
    assert verdict.startswith("Healthy: 1 worker, ")
    lines = [line.split() for line in rest]
    assert lines[0][:3] == ["Queue", "Ready", "Scheduled"]
    assert [lines[1][0], lines[1][1], lines[1][-1]] == ["mail", "1", "1"]
    assert lines[4][:5] == ["shop.tasks.send", "100", "2", "0", "0"]
    assert lines[4][5:7] == ["1.5", "ms"]
    assert run("stats", "--by", "queue", "--span", "7d").splitlines()[6].startswith("mail  ")
    assert len(run("stats", "--by", "time", "--span", "24h").splitlines()) == 6 + 96
    assert "mail" not in run("stats", "--queue", "other")


@pytest.mark.parametrize("command", ["stats", "top", "jobs", "failures", "health", "workers", "database"])
def test_the_output_is_in_english(command: str) -> None:
    WorkerFactory.create()
    job = JobFactory.create(queue_name="mail", failed=True, error_fingerprint="f")
    JobFactory.create(queue_name="mail")
    note(connections["default"].connection, "f", job_id=job.pk)
    fold(connections["default"].connection)
    english = run(command)
    with translation.override("de"):
        found = run(command)
    numbers = re.compile(r"[\d.,]+")
    assert numbers.sub("", found) == numbers.sub("", english)


def test_stats_as_json() -> None:
    JobFactory.create(queue_name="mail")
    JobStatFactory.create(done=1, run_histogram=classes(c23=1))
    found = json.loads(run("stats", "--json"))
    assert (found["healthy"], found["summary"], found["problems"]) == (
        False, "1 problem", [
            {"kind": "no_worker", "queue_name": "", "text": "no worker claims jobs",
             "fix": "Start a worker: manage.py runqueueworker", "is_minor": False},
        ],
    )  # fmt: skip
    assert [(queue["queue_name"], queue["ready"], queue["workers"]) for queue in found["queues"]] == [
        ("mail", 1, 0)
    ]
    (row,) = found["ran"]
    assert (row["task"], row["done"], row["ran"]["p50"], row["waited"]["p50"]) == (
        "tests.app.tasks.add", 1, None, None,
    )  # fmt: skip
    assert "T" in json.loads(run("stats", "--json", "--by", "time"))["ran"][0]["time"]


def test_health() -> None:
    WorkerFactory.create()
    assert run("health").startswith("healthy: workers 1, ready jobs 0")
    JobFactory.create_batch(3, queue_name="mail")
    found = json.loads(run("health", "--queue", "mail", "--json"))
    assert (found["healthy"], found["ready"], found["problems"]) == (True, 3, [])
    for options in (("--depth", "2"), ("--workers", "2", "--queue", "mail")):
        with pytest.raises(CommandError, match=r"^unhealthy: mail: ") as caught:
            run("health", *options)
        assert caught.value.returncode == 1


def test_metrics() -> None:
    Queue.objects.using("other").create(name="mail")
    assert 'pgqueue_up{database="default"} 1.0' in run("metrics")
    assert 'database="other"' not in run("metrics")
    assert 'database="other",queue="mail"' in run("metrics", "--database", "other")
    with pytest.raises(CommandError, match=r"Cannot listen on 203\.0\.113\.1, port 1"):
        run("metrics", "--port", "1", "--address", "203.0.113.1")


@pytest.mark.django_db(transaction=True, databases=["default"])
def test_the_exporter_answers_until_it_is_stopped() -> None:
    server = exporter(make_wsgi_app(registry(["default"])), "127.0.0.1", 0)
    bodies: list[str] = []

    def ask() -> None:
        for _ in range(2):
            with urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as response:
                bodies.append(response.read().decode())
            connections["default"].close()
        os.kill(os.getpid(), signal.SIGTERM)

    client = Thread(target=ask)
    client.start()
    serve(server)
    client.join()
    assert ['pgqueue_up{database="default"} 1.0' in body for body in bodies] == [True, True]


def test_a_scrape_ends_that_runs_when_the_exporter_is_stopped() -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        os.kill(os.getpid(), signal.SIGTERM)
        start_response("200 OK", [])
        return [b"whole"]

    server = exporter(app, "127.0.0.1", 0)
    bodies: list[bytes] = []

    def ask() -> None:
        with urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as response:
            bodies.append(response.read())

    client = Thread(target=ask)
    client.start()
    serve(server)
    client.join()
    assert bodies == [b"whole"]


def test_without_prometheus_client(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(CommandError, match=r"the extra .metrics."):
        run("metrics")
