from django.db import transaction

from django_pgqueue import current_job, enqueue, task
from django_pgqueue.models import Job

from .approved import publish_prices, wait_for_approval
from .resuming import import_prices


@task
def publish(supplier: str) -> str:
    (count,) = current_job().parents.results
    name = wait_for_approval()
    current_job().atomic_step("publish", publish_prices, supplier)
    return f"{count} prices, approved by {name}"


def start(supplier: str) -> Job:
    with transaction.atomic():
        imported = enqueue(import_prices, supplier)
        return enqueue(publish.using(after=imported), supplier)
