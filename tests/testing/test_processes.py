"""What starts processes: the pytest plugin in projects of its own, and a real worker on the test database."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.test import TestCase

from django_pgqueue import enqueue
from django_pgqueue.models import Worker
from django_pgqueue.testing import RunningWorker, assert_enqueued, pytest_plugin, running_worker
from tests.app import inline_tasks, process_tasks

BARE = """
import sys
import pytest

def test_nothing_of_django_is_imported():
    assert "django_pgqueue.testing.pytest_plugin" in sys.modules
    assert "django" not in sys.modules

@pytest.mark.skip
def test_fixtures_are_not_used(run_jobs, immediate_jobs, dummy_jobs): ...
"""


def test_pytest_finds_it_and_its_fixtures_are_described() -> None:
    (found,) = [each for each in entry_points(group="pytest11") if each.name == "django_pgqueue"]
    assert found.load() is pytest_plugin
    for name in ("run_jobs", "immediate_jobs", "dummy_jobs", "pgqueue_worker"):
        assert getattr(pytest_plugin, name).__doc__


def test_it_disturbs_no_project_without_django(tmp_path: Path) -> None:
    (tmp_path / "test_bare.py").write_text(BARE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-c", "/dev/null", "--rootdir", ".",
         "-p", "no:cacheprovider", "-p", "no:django", "-p", "no:xdist", "test_bare.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr


@pytest.mark.django_db
def test_a_failed_assertion_hides_the_frames_of_the_kit() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_enqueued("shop.tasks.report")
    shown = [Path(entry.path).name for entry in caught.traceback if not entry.ishidden(caught)]
    assert shown == [Path(__file__).name]


# --- A real worker


def test_a_worker_runs_the_jobs_of_the_test_database(pgqueue_worker: RunningWorker) -> None:
    job = pgqueue_worker.join(enqueue(process_tasks.where_it_runs, "no secret"))
    assert job.result is not None
    assert job.result["database"] == connection.settings_dict["NAME"]
    failed = enqueue(inline_tasks.end, "fail")
    assert pgqueue_worker.join(failed.pk).status == "failed"
    result = inline_tasks.see.enqueue(1)
    assert pgqueue_worker.join(result).status == pgqueue_worker.join(result.id).status == "done"
    with pytest.raises(ValueError, match="in the database 'other', and the worker is in 'default'"):
        pgqueue_worker.join("other:5")
    assert "Fatal" in pgqueue_worker.log
    with pytest.raises(AssertionError, match=r"is pending after 0 s\n\nThe log.*\n(.|\n)*Fatal"):
        pgqueue_worker.join(enqueue(inline_tasks.see.using(run_after=timedelta(hours=1)), 1), timeout=0)
    assert pgqueue_worker.stop() == 0
    assert not Worker.objects.exists()
    with pytest.raises(AssertionError, match="the worker has ended, and job"):
        pgqueue_worker.join(enqueue(inline_tasks.see, 1))


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_does_not_start_shows_its_log() -> None:
    with (
        pytest.raises(
            AssertionError, match=r"has ended at its start\n\nThe log of the worker:\n(.|\n)*threads"
        ),
        running_worker(threads=0),
    ):
        pass


@pytest.mark.django_db(transaction=True)
def test_in_a_transaction_it_is_refused() -> None:
    with (
        transaction.atomic(),
        pytest.raises(ImproperlyConfigured, match=r"TransactionTestCase.*run_jobs\(\)"),
    ):
        running_worker().__enter__()


class InTestCase(TestCase):
    def test_it_is_refused(self) -> None:
        with pytest.raises(ImproperlyConfigured, match=r"this test is in a transaction on 'default'"):
            running_worker().__enter__()
