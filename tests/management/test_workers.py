"""``manage.py pgqueue workers`` and ``drain-worker``."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_pgqueue.models import Worker
from tests.support.factories import JobFactory, WorkerFactory

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("pgqueue", *arguments, stdout=out)
    return out.getvalue().strip()


def test_the_list() -> None:
    assert run("workers") == "No worker is registered."
    assert run("workers", "--json") == "[]"
    long_ago = timezone.now() - timedelta(hours=2)
    first = WorkerFactory.create(host="app-1", pid=1, slots=4, drain="stop")
    second = WorkerFactory.create(host="app-2", pid=2, queues=["mail", "slow"], heartbeat_at=long_ago)
    third = WorkerFactory.create(host="app-3", pid=0, supervisor=None, exclude_queues=["never"], drain="stop",
                                 state="draining")  # fmt: skip
    JobFactory.create(running=True, worker=first.pk)
    lines = run("workers").splitlines()
    assert lines[0].startswith("app-1:1 running, to be stopped: 1 of 4 jobs, all queues, last heartbeat 0 s ")
    assert lines[0].endswith(f"(id {first.pk})")
    assert lines[1].startswith("app-2:2 dead: ")
    assert "queues mail, slow, last heartbeat 2 h ago" in lines[1]
    assert lines[2].startswith("app-3 draining: ")
    assert "queues all but never" in lines[2]
    rows = json.loads(run("workers", "--json"))
    assert [(row["id"], row["state"], row["drain"], row["running"]) for row in rows] == [
        (first.pk, "running", "stop", 1), (second.pk, "dead", "", 0), (third.pk, "draining", "stop", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "how", "words"),
    [
        ((), "replace", "to finish its jobs and end. Another process will replace it."),
        (("--stop",), "stop", "and all processes of its supervisor to finish their jobs and end."),
    ],
)
def test_a_worker_is_asked_by_its_name_or_its_id(options: tuple[str, ...], how: str, words: str) -> None:
    worker = WorkerFactory.create(host="app-1", pid=4711)
    WorkerFactory.create(host="app-1", pid=4712)
    for name in (str(worker), str(worker.pk)):
        Worker.objects.update(drain="")
        assert run("drain-worker", name, *options) == f"Asked {worker} {words}"
        assert list(Worker.objects.exclude(drain="").values_list("pk", "drain")) == [(worker.pk, how)]


def test_what_was_asked_as_json() -> None:
    worker = WorkerFactory.create(host="app-1", pid=4711)
    assert json.loads(run("drain-worker", "app-1:4711", "--json")) == {
        "database": "default", "action": "drain-worker", "worker": worker.pk, "name": "app-1:4711",
        "replace": True,
    }  # fmt: skip
    assert run("drain-worker", "app-1:4711", "--stop", "--quiet") == ""


def test_nobody_replaces_a_worker_in_another_language() -> None:
    WorkerFactory.create(host="media", pid=0, supervisor=None)
    assert run("drain-worker", "media") == "Asked media to finish its jobs and end."


def test_another_database() -> None:
    WorkerFactory.create(host="app-1", pid=1)
    assert run("workers", "--database", "other") == "No worker is registered."
    with pytest.raises(CommandError, match="'app-1:1' in the database 'other'"):
        run("drain-worker", "app-1:1", "--database", "other")
    assert Worker.objects.get().drain == ""


def test_what_cannot_be_done() -> None:
    twins = [WorkerFactory.create(host="pod", pid=1).pk for _ in range(2)]
    for arguments, words, code in (
        (["drain-worker"], "required", 2),
        (["drain-worker", "app-9:1"], "No worker has the name or the id 'app-9:1'", 1),
        (["drain-worker", "pod:1"], "2 workers have the name 'pod:1'. Give one of the ids", 1),
    ):
        with pytest.raises(CommandError, match=words) as refused:
            run(*arguments)
        assert refused.value.returncode == code
    assert run("drain-worker", str(twins[1])).startswith("Asked pod:1 ")
    assert Worker.objects.exclude(drain="").get().pk == twins[1]
