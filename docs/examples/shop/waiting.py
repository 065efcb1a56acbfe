import asyncio

from django_pgqueue import enqueue
from django_pgqueue.models import Job

from .tasks import send_receipt


def address_of(order_id: int, seconds: float) -> str | None:
    job = enqueue(send_receipt, order_id)
    try:
        job.join(timeout=seconds)
    except TimeoutError:
        return None  # the job goes on
    return job.result if job.status == Job.Status.DONE else None


async def addresses_of(order_ids: list[int]) -> list[str]:
    results = [await send_receipt.aenqueue(order_id) for order_id in order_ids]
    await asyncio.gather(*(result.ajoin(timeout=20) for result in results))
    return [result.return_value for result in results]
