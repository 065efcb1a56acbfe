"""Bring the index up to date with some folders. Rows and jobs are written in one transaction.

After the transaction, either every new or changed file has its document and its job, or nothing has changed.
A second run creates jobs only for files that changed. It may run while workers or another run are active.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django.db import connection, transaction
from django.db.models import Q

from django_pgqueue.models import Job

from .discovery import Found, walk
from .models import Document, Run
from .runs import new_run
from .tasks import live_jobs

ONE_RUN_AT_A_TIME = 0x5EA2C4  # an advisory lock, so that two runs do not insert the same paths
BATCH = 2000

# A file that failed for one of these reasons may be readable now even if it looks unchanged.
WORTH_ANOTHER_TRY = (Document.Cause.GONE, Document.Cause.UNREADABLE)


@dataclass(slots=True)
class Report:
    """What a run found and did. `seconds` is the time of the transaction, without the walk of the folders.

    `run` and `summary` (the job that sums it up) are None if there was nothing to index.
    """

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    job_ids: list[int] = field(default_factory=list)
    run: Run | None = None
    summary: Job | None = None
    seconds: float = 0


def index_folders(
    roots: Sequence[Path], *, suffixes: Container[str] | None = None, limit: int | None = None
) -> Report:
    """Index the text files under `roots`, which are absolute paths.

    `suffixes` and `limit` restrict which files, and how many, are indexed. Documents under `roots` whose
    files are no longer among the indexed files are removed.
    """
    report = Report()
    files: dict[str, Found] = {}
    for root in roots:
        found = walk(root, suffixes=suffixes)
        report.skipped += found.skipped
        files |= {file.path: file for file in found.files}
    if limit is not None and len(files) > limit:
        report.skipped["over the limit"] += len(files) - limit
        files = dict(list(files.items())[:limit])
    began = time.perf_counter()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [ONE_RUN_AT_A_TIME])
        _bring_up_to_date(under(roots), files, report)
    report.seconds = time.perf_counter() - began
    return report


def under(roots: Iterable[Path]) -> Q:
    """Return a condition for the documents under these folders."""
    condition = Q(pk__in=[])
    for root in roots:
        condition |= Q(path__startswith=f"{str(root).rstrip('/')}/")
    return condition


def _bring_up_to_date(scope: Q, files: dict[str, Found], report: Report) -> None:
    unstarted, running = _documents_in_jobs()
    changed: list[tuple[int, int]] = []
    gone: list[int] = []
    known = Document.objects.filter(scope).values_list("pk", "path", "size", "modified", "state", "cause")
    seen = set()
    for pk, path, size, modified, state, cause in known.iterator(BATCH):
        file = files.get(path)
        if file is None:
            gone.append(pk)
            continue
        seen.add(path)
        differs = (file.size, file.modified) != (size, modified)
        waits_in_vain = state == Document.State.WAITING and pk not in running
        if pk not in unstarted and (differs or waits_in_vain or cause in WORTH_ANOTHER_TRY):
            changed.append((pk, file.size))
    report.removed = Document.objects.filter(pk__in=gone).delete()[0] if gone else 0
    new = [file for path, file in files.items() if path not in seen]
    report.new, report.changed, report.unchanged = len(new), len(changed), len(seen) - len(changed)
    if new or changed:
        _start(new, changed, report)


def _start(new: list[Found], changed: list[tuple[int, int]], report: Report) -> None:
    """Enqueue a job for each new file and each changed document, as (id, size)."""
    with new_run(len(new) + len(changed)) as begun:
        report.run, report.summary = begun.run, begun.summary
        Document.objects.filter(pk__in=[pk for pk, _ in changed]).update(
            state=Document.State.WAITING, cause="", reason="", run=begun.run
        )
        created = Document.objects.bulk_create(
            [Document(path=file.path, size=file.size, modified=file.modified, run=begun.run) for file in new],
            batch_size=BATCH,
        )
        report.job_ids = begun.add([*((document.pk, document.size) for document in created), *changed]).ids


def _documents_in_jobs() -> tuple[set[int], set[int]]:
    """Return the documents whose job has not started, and those whose job runs, maybe on an older version."""
    unstarted: set[int] = set()
    running: set[int] = set()
    for status, args in live_jobs().values_list("status", "args"):
        (running if status == Job.Status.RUNNING else unstarted).add(args[0])
    return unstarted, running
