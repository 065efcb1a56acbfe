"""Whether an index is whole: every file with its document and its job, once each, and all of them over."""

from __future__ import annotations

from collections import Counter

from django.db.models import Q

from django_pgqueue.models import Job
from example_project.search.indexing import Report, under
from example_project.search.models import Document

from .corpus import roots

# What a job that is over has made of its document: its state, and whether a search can find it.
ENDS = {Job.Status.DONE: (Document.State.INDEXED, True), Job.Status.FAILED: (Document.State.FAILED, False)}


def troubles(report: Report) -> list[str]:
    """What is missing, there twice, or not over, a line for each kind. Of a run to which all was new."""
    documents = {
        pk: (state, can_be_found)
        for pk, state, can_be_found in Document.objects.filter(under(roots()))
        .annotate(can_be_found=Q(vector__isnull=False))
        .values_list("pk", "state", "can_be_found")
    }
    jobs = list(Job.objects.filter(pk__in=report.job_ids).values_list("pk", "args", "status"))
    times = Counter(pk for pk, _, _ in jobs)  # a row for each shelf that a job lies on
    jobs_of_document = Counter(args[0] for _, args, _ in jobs)
    found = {
        "files without a document": range(report.new - len(documents)),
        "jobs are missing": sorted(set(report.job_ids) - set(times)),
        "jobs are there twice": [pk for pk, count in times.items() if count > 1],
        "documents without a job": sorted(documents.keys() - set(jobs_of_document)),
        "documents with two jobs": [pk for pk, count in jobs_of_document.items() if count > 1],
        "documents are not what their jobs should have made of them": [
            args[0] for _, args, status in jobs if ENDS.get(Job.Status(status)) != documents.get(args[0])
        ],
    }
    return [f"{len(which):,} {what}, the first is {which[0]}" for what, which in found.items() if len(which)]
