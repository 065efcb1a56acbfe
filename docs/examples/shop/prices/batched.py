from django.utils import timezone

from django_pgqueue import Batch, current_job, enqueue, task

from ..models import DailyReport
from .approved import publish_prices, wait_for_approval
from .resuming import import_prices


@task
def publish_all(suppliers: list[str]) -> str:
    name = wait_for_approval()
    count = current_job().atomic_step("publish", publish_prices, *suppliers)
    return f"{count} prices, approved by {name}"


@task
def report() -> str:
    (batch,) = current_job().parents.batches
    counts = Batch.get(batch).counts()
    text = f"{counts.done} suppliers imported, {counts.failed} failed"
    DailyReport.objects.update_or_create(day=timezone.localdate(), defaults={"text": text})
    return text


def start(suppliers: list[str]) -> Batch:
    with Batch("prices") as batch:
        batch.add(import_prices.bind(supplier) for supplier in suppliers)
        enqueue(report.using(after=batch, if_failed="run"))
        enqueue(publish_all.using(after=batch), suppliers)
    return batch
