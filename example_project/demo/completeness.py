"""Check that an index is complete: every file has exactly one document and one job, and all jobs are over."""

from __future__ import annotations

from collections import Counter

from django.db.models import Q

from django_pgqueue.models import Job
from example_project.search.indexing import Report, under
from example_project.search.models import Document

from .corpus import roots

# For each status of a job that is over: the state of its document, and whether a search can find the
# document.
ENDS = {Job.Status.DONE: (Document.State.INDEXED, True), Job.Status.FAILED: (Document.State.FAILED, False)}


def troubles(report: Report) -> list[str]:
    """Return a line for each kind of problem: what is missing, duplicated, or not over.

    All files must have been new to the run of the report.
    """
    documents = {
        pk: (state, can_be_found)
        for pk, state, can_be_found in Document.objects.filter(under(roots()))
        .annotate(can_be_found=Q(vector__isnull=False))
        .values_list("pk", "state", "can_be_found")
    }
    jobs = list(Job.objects.filter(pk__in=report.job_ids).values_list("pk", "args", "status"))
    times = Counter(pk for pk, _, _ in jobs)  # a job on two shelves would have two rows
    jobs_of_document = Counter(args[0] for _, args, _ in jobs)
    found = {
        "files without a document": range(report.new - len(documents)),
        "jobs are missing": sorted(set(report.job_ids) - set(times)),
        "jobs exist twice": [pk for pk, count in times.items() if count > 1],
        "documents without a job": sorted(documents.keys() - set(jobs_of_document)),
        "documents with two jobs": [pk for pk, count in jobs_of_document.items() if count > 1],
        "documents do not match the outcome of their jobs": [
            args[0] for _, args, status in jobs if ENDS.get(Job.Status(status)) != documents.get(args[0])
        ],
    }
    return [f"{len(which):,} {what}; the first is {which[0]}" for what, which in found.items() if len(which)]
