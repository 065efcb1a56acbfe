"""The steps of the demonstration, in the order in which the command calls them."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass

import django
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, transaction
from django.db.models import QuerySet

from django_pgqueue import cancel
from django_pgqueue.models import Job
from example_project.project.database import given_url
from example_project.project.places import EMBEDDED_SERVER
from example_project.search.indexing import Report, index_folders, under
from example_project.search.models import Document
from example_project.search.tasks import LIVE, index_document, live_jobs

from .accident import Accident
from .children import Child
from .corpus import SUFFIXES, roots, surprising_files
from .display import Live, Screen
from .interruption import Interruption
from .killing import LOOK_EVERY

PATIENCE = 600  # maximum seconds for all jobs of a run
SUMMARY = 60  # maximum seconds for the job that sums it up
UPDATE_EVERY = 0.2  # seconds


@dataclass(frozen=True, slots=True)
class Story:
    """The demonstration on a screen, with at most `limit` files."""

    screen: Screen
    limit: int

    def prepare(self) -> None:
        """Print the versions, create the tables, and remove the documents of an earlier run."""
        self.screen.title("A search engine for folders, indexed by a job queue in PostgreSQL")
        with connection.cursor() as cursor:
            cursor.execute("SHOW server_version")
            (server,) = cursor.fetchone()
        place = "DATABASE_URL" if given_url() else str(EMBEDDED_SERVER)
        self.screen.fact("PostgreSQL", f"{server}, {place}")
        self.screen.fact("Python", f"{platform.python_version()}, Django {django.__version__}")
        self.screen.fact("Migrations", "being applied, which takes a few seconds the first time")
        call_command("migrate", verbosity=0)
        documents = set(Document.objects.filter(under(roots())).values_list("pk", flat=True))
        if documents:
            left = [pk for pk, args in live_jobs().values_list("pk", "args") if documents.intersection(args)]
            cancel(Job.objects.filter(pk__in=left))
            Document.objects.filter(pk__in=documents).delete()
            self.screen.fact("Started over", f"{len(documents):,} documents of the last run were removed")

    def enqueue(self) -> Report:
        """Enqueue all files twice: in a transaction that is rolled back, and in one that is committed."""
        self.screen.title("Thousands of files and their jobs in one transaction")
        with surprising_files():
            with transaction.atomic():
                lost = self._index()
                transaction.set_rollback(True)
            self._show_nothing_is_left(lost)
            report = self._index()
        self.screen.fact(
            "Committed",
            f"{report.new:,} documents and {len(report.job_ids):,} jobs in {report.seconds:.2f} s "
            f"({len(report.job_ids) / report.seconds:,.0f} per second)",
        )
        if report.run and report.summary:
            self.screen.fact(
                "Batch",
                f"{report.run.batch_id} has these jobs; job {report.summary.pk} runs after all of them",
            )
        skipped = ", ".join(f"{count:,} {reason}" for reason, count in report.skipped.most_common())
        self.screen.fact("Skipped", skipped or "nothing")
        return report

    def run(self, report: Report, worker: Child) -> None:
        """Show the progress until all jobs of the report are over, and kill two of the worker's processes."""
        live = Live(self.screen, len(report.job_ids))
        jobs = jobs_of(report)
        accident = Accident(worker, jobs, len(report.job_ids))
        interruption = Interruption(worker, jobs)
        news = [accident.toll, interruption.resumption]
        deadline = time.monotonic() + PATIENCE
        while True:
            depth = jobs.filter(status__in=LIVE).count()
            for tell in [*news]:
                if text := tell():
                    for line in str(text).splitlines():
                        live.say(self.screen.style(line, "bold"))
                    news.remove(tell)
            live.update(depth, jobs.filter(status=Job.Status.FAILED).count(), is_last=not depth)
            if not depth:
                break
            if time.monotonic() > deadline:
                raise CommandError(f"{depth:,} jobs are not over after {PATIENCE} s. See {worker.log}.")
            worker.check()
            until = time.monotonic() + UPDATE_EVERY
            while time.monotonic() < until:
                if not interruption.look():  # the other one may take a second
                    accident.look()
                    time.sleep(LOOK_EVERY)
        self._explain(accident, interruption)

    def check(self, report: Report) -> None:
        """Show what the last job of the run has written. Raise CommandError unless the index is complete."""
        if report.run is None or report.summary is None:
            raise CommandError("There was nothing to index.")
        job = report.summary.join(timeout=SUMMARY)
        report.run.refresh_from_db()
        summary = report.run.summary
        if summary is None:
            raise CommandError(f"The job that sums up the run is {job.status}: {job.errors}")
        if summary["troubles"]:
            raise CommandError("\n".join(["The index is not complete:", *summary["troubles"]]))
        failed = sum(summary["failed"].values())
        self.screen.fact(
            "Complete",
            f"{summary['files']:,} files: {summary['indexed']:,} indexed, {failed:,} failed; "
            "none missing, none twice",
        )
        self.screen.fact("Summed up", f"by job {job.pk}, which waited for the batch of all these jobs")

    def index_again(self) -> None:
        """Run the indexing again, which creates jobs only for files that changed."""
        self.screen.title("Indexing again: only files that changed")
        again = self._index()
        self.screen.fact(
            "Second run",
            f"{again.unchanged:,} unchanged, {again.new:,} new, {again.changed:,} changed, "
            f"{again.removed:,} removed in {again.seconds:.2f} s",
        )

    def _explain(self, accident: Accident, interruption: Interruption) -> None:
        """Say what did not happen. Raise CommandError if a step has run twice."""
        if not accident.has_happened:
            self.screen.say(
                "  no worker was killed, because the run ended too soon; use more files (--files)"
            )
        if not interruption.has_happened:
            self.screen.say("  no worker was killed in a large document, because it was indexed too soon")
        resumption = interruption.resumption()
        if resumption and resumption.repeated:
            raise CommandError(f"The job ran these steps twice: {', '.join(resumption.repeated)}")

    def _show_nothing_is_left(self, lost: Report) -> None:
        documents = Document.objects.filter(under(roots())).count()
        jobs = jobs_of(lost).count()
        self.screen.fact(
            "Rolled back",
            f"{lost.new:,} documents and {len(lost.job_ids):,} jobs in {lost.seconds:.2f} s; "
            f"left: {documents} and {jobs}",
        )
        if documents or jobs:
            raise CommandError("A transaction that was rolled back has left documents or jobs behind.")

    def _index(self) -> Report:
        return index_folders(roots(), suffixes=SUFFIXES, limit=self.limit)


def jobs_of(report: Report) -> QuerySet[Job]:
    """Return the jobs that a run enqueued."""
    return Job.objects.filter(
        task_path=index_document.module_path, pk__gte=report.job_ids[0], pk__lte=report.job_ids[-1]
    )
