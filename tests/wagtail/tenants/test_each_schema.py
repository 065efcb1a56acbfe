"""With the tables of the queue in each schema: what works, and what does not."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from django_tenants.utils import schema_context

from django_pgqueue import enqueue
from django_pgqueue.testing import run_jobs

from .shop.tasks import read_carried

pytestmark = pytest.mark.wagtail


def test_jobs_are_written_and_tests_run_them() -> None:
    for name in ("acme", "bolt"):
        with schema_context(name):
            job = enqueue(read_carried)
            assert job.pk == 1, "ids are not those of one queue"
            run_jobs()
            job.refresh_from_db()
            assert job.result == [name, f"{name}@example.com"]


def test_no_worker_runs_them() -> None:
    with pytest.raises(
        CommandError, match="The database 'default' lacks tables of django_pgqueue: pgqueue_alert"
    ):
        call_command("runqueueworker", burst=True)
    # As tenant_command does.
    with schema_context("acme"), pytest.raises(CommandError, match="another search path"):
        call_command("runqueueworker", burst=True)
