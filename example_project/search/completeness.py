"""Check that a run is complete: each file has exactly one document and one job, and no job is live."""

from __future__ import annotations

from collections import Counter

from django.db.models import Q

from django_pgqueue.models import Job

from .models import Document, Run

# For each status of a finished job: the state of its document, and whether a search can find the
# document.
ENDS = {Job.Status.DONE: (Document.State.INDEXED, True), Job.Status.FAILED: (Document.State.FAILED, False)}


def troubles(run: Run) -> list[str]:
    """Return a line for each kind of problem: what is missing, duplicated, or not over."""
    documents = {
        pk: (state, can_be_found)
        for pk, state, can_be_found in run.documents.annotate(
            can_be_found=Q(vector__isnull=False)
        ).values_list("pk", "state", "can_be_found")
    }
    jobs = list(Job.objects.filter(batch_id=run.batch_id).values_list("pk", "args", "status"))
    times = Counter(pk for pk, _, _ in jobs)  # a job on two shelves would have two rows
    jobs_of_document = Counter(args[0] for _, args, _ in jobs)
    found = {
        "files without a document": range(run.files - len(documents)),
        "jobs are missing": range(run.files - len(times)),
        "jobs exist twice": [pk for pk, count in times.items() if count > 1],
        "documents without a job": documents.keys() - set(jobs_of_document),
        "documents with two jobs": [pk for pk, count in jobs_of_document.items() if count > 1],
        "documents do not match the outcome of their jobs": [
            args[0] for _, args, status in jobs if ENDS.get(Job.Status(status)) != documents.get(args[0])
        ],
    }
    return [f"{len(which):,} {what}; the first is {min(which)}" for what, which in found.items() if which]
