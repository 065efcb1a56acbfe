"""Work that the demonstration repeats at fixed times. `demo --serve` shows these schedules in the admin.

They are in this app, because every worker of a project with the app `search` would run those of its tasks.
"""

from __future__ import annotations

from pathlib import Path

from django.db.models import Count

from django_pgqueue import schedule, task
from example_project.search.models import Document

BATCH = 2000


@schedule(name="count-documents", cron="* * * * *")
@task
def count_documents() -> dict[str, int]:
    """Return how many documents there are in each state. The admin shows the result with the job."""
    counts = Document.objects.order_by().values_list("state").annotate(Count("pk"))
    return dict.fromkeys(Document.State.values, 0) | dict(counts)


@schedule(name="forget-missing-files", cron="0 3 * * *", timezone="Europe/Paris", catch_up="skip")
@task(timeout=600)
def forget_missing_files() -> int:
    """Remove the documents whose files no longer exist. Return how many these were."""
    documents = Document.objects.order_by().values_list("pk", "path")
    gone = [pk for pk, path in documents.iterator(BATCH) if not Path(path).exists()]
    Document.objects.filter(pk__in=gone).delete()
    return len(gone)
