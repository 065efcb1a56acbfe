"""The adapter of this project: ``python -m benchmarks.public.adapter`` in a checkout.

It uses only what users use: settings, ``@task``, ``enqueue_many``, the model ``Job`` and ``runqueueworker``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.public.contract import Manifest, Options
from benchmarks.public.replica import Call, Depths, run

SETTINGS = {"DJANGO_SETTINGS_MODULE": "benchmarks.public.settings"}


class PgQueue:
    """django_pgqueue."""

    manifest = Manifest.load(Path(__file__).with_name("adapter.json"))

    def prepare(self, options: Options) -> tuple[str, str]:
        """Set up Django, and migrate."""
        os.environ |= SETTINGS
        import django
        from django.core.management import call_command
        from django.db import connection
        from django.db.migrations.recorder import MigrationRecorder

        django.setup()
        call_command("migrate", verbosity=0)
        applied = MigrationRecorder(connection).applied_migrations()
        connection.close()
        return version("dj-pgqueue"), max(name for app, name in applied if app == "django_pgqueue")

    def add(self, calls: Sequence[Call]) -> None:
        """Add jobs with ``enqueue_many``. Close a connection that has failed, as Django does in a request."""
        from django.db import connection

        from benchmarks.public.tasks import bench_job
        from django_pgqueue import enqueue_many

        try:
            enqueue_many(bench_job.bind(*call) for call in calls)
        except Exception:
            connection.close()
            raise

    def count(self) -> Depths:
        """Count the jobs on the shelf of the jobs that are not over."""
        from django.db import connection
        from django.db.models import Count, Q
        from django.db.models.functions import Now

        from django_pgqueue.models import Job

        is_due = Q(run_after__lte=Now())
        try:
            counts = Job.objects.filter(shelf=0).aggregate(
                queue=Count("pk", filter=Q(status__in=["pending", "retry"]) & is_due),
                running=Count("pk", filter=Q(status="running")),
                retryable=Count("pk", filter=Q(status="retry") & ~is_due),
                scheduled=Count("pk", filter=Q(status="pending") & ~is_due),
            )
        except Exception:
            connection.close()
            raise
        return Depths(**counts)

    def workers(self, options: Options) -> Sequence[tuple[Sequence[str], Mapping[str, str]]]:
        """Return one command: its supervisor starts the processes."""
        sizes = ["--processes", str(options.processes), "--threads", str(options.workers_per_process)]
        # Jobs take a millisecond. The contract gives an adapter 5 seconds to stop.
        command = [sys.executable, "-m", "django", "runqueueworker", "--verbosity", "0", "--grace", "1"]
        return [([*command, *sizes], SETTINGS)]


if __name__ == "__main__":
    run(PgQueue())
