from datetime import timedelta

from django_pgqueue import CancelJob, EventTimeout, current_job, send_event, task

from ..models import Price
from .download import count_pages, download
from .plain import save_prices


@task
def import_prices(supplier: str) -> str:
    job = current_job()
    prices: dict[str, int] = {}
    for page in range(1, job.step("count", count_pages, supplier) + 1):
        prices |= job.step(f"page {page}", download, supplier, page)
    job.atomic_step("save", save_prices, supplier, prices)
    name = wait_for_approval()
    job.atomic_step("publish", publish_prices, supplier)
    return f"approved by {name}"


def wait_for_approval() -> str:
    job = current_job()
    try:
        answer = job.receive_event("approval", timeout=timedelta(days=3))
    except EventTimeout:
        raise CancelJob("nobody has approved the prices") from None
    job.sleep("time to object", timedelta(minutes=10))
    return str(answer["by"])


def publish_prices(*suppliers: str) -> int:
    return Price.objects.filter(supplier__in=suppliers).update(public=True)


def approve(job_id: int, name: str) -> bool:
    """Called by a view. Return False if another user has approved the prices before."""
    return send_event(job_id, "approval", {"by": name})
