from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from django_pgqueue import enqueue, task
from django_pgqueue.models import Job

from .models import Export


@task
def write_export(export_id: int) -> None:
    Export.objects.filter(pk=export_id).update(outcome="written")


def start_export(name: str) -> Export:
    with transaction.atomic():
        export = Export.objects.create(name=name)
        export.job = enqueue(write_export, export.pk)
        export.save(update_fields=["job"])
    return export


def failed_exports() -> QuerySet[Export]:
    return Export.objects.filter(job__status="failed")


def status_of(export: Export) -> str:
    job = Job.objects.filter(pk=export.job_id).first()
    return export.outcome if job is None else job.status


def forget_old_jobs() -> int:
    kept = Exists(Job.objects.filter(pk=OuterRef("job_id")))
    return Export.objects.filter(~kept, job__isnull=False).update(job=None)
