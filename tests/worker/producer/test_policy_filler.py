from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from django_pgqueue.models import Job
from django_pgqueue.postgres import session
from django_pgqueue.worker.producer.claimer import fill_policies
from tests.app import timing_tasks, worker_tasks
from tests.support.jobs import add, claim
from tests.support.sessions import Connect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.usefixtures("undeclared")
@pytest.mark.parametrize(
    ("task", "policy", "commit"),
    [(worker_tasks.noop, "rerun", "off"), (timing_tasks.dies_and_must_not_run_twice, "fail", "on")],
)
@pytest.mark.promise("on-lost-claim-on-disk")
def test_that_a_job_must_not_run_twice_is_on_disk_before_it_runs(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, task: Any, policy: str, commit: str
) -> None:
    """Its claim did not know that, so it did not wait for the disk."""
    add(one := connect(autocommit=True), task_path=task.module_path)
    rows = claim(one)
    commits = []
    with closing(session.connect("default")) as own:
        run = own.run

        def run_and_look(*statements: Any, **options: Any) -> Any:
            *answers, [(level,)] = run(*statements, ("SHOW synchronous_commit", None), **options)
            commits.append(level)
            return answers

        monkeypatch.setattr(own, "run", run_and_look)
        (row,) = fill_policies(own, rows)
    assert (row.on_lost, Job.objects.get(pk=row.id).on_lost, commits) == (policy, policy, [commit])
