from collections.abc import AsyncIterator

from django_pgqueue import current_job, task, track

from .models import DailyReport, Order


@task
def write_report(report_id: int) -> int:
    job = current_job()
    orders = list(Order.objects.order_by("pk"))
    total = 0
    for number, order in enumerate(orders, start=1):
        total += order.total
        job.set_progress(number, len(orders), note=order.email)
    job.set_progress(len(orders), len(orders), note="saving")
    DailyReport.objects.filter(pk=report_id).update(text=f"{total} in all")
    return total


@task
def remind() -> int:
    reminded = 0
    for order in track(Order.objects.all(), note=lambda order: f"order {order.pk}"):
        reminded += len(order.email) > 0
    return reminded


async def pages() -> AsyncIterator[str]:
    """Stands for an API that returns one page after the other."""
    for number in range(3):
        yield f"page {number}"


@task
async def fetch() -> int:
    count = 0
    async for _ in track(pages(), total=3):
        count += 1
    return count
