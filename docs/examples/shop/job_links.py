"""Links from the jobs of a task to their subjects. In a project, this is part of ``shop/admin.py``."""

from django_pgqueue.admin import links_for
from django_pgqueue.models import Job

from .tasks import send_receipt


@links_for(send_receipt)
def receipt_links(job: Job) -> list[tuple[str, str]]:
    [order_id] = job.args
    return [(f"Order {order_id}", f"/orders/{order_id}/")]
