import asyncio
import time
from pathlib import Path
from urllib.request import urlopen

from django_pgqueue import TaskTimeout, current_job, extend, task
from django_pgqueue.models import Job


@task(timeout=60)
def render_invoice(order_id: int) -> str:
    return f"invoice {order_id}"


@task(timeout=1, fail_on=TaskTimeout)
def export_catalog(folder: str, pages: int) -> int:
    unfinished = Path(folder, "catalog.part")
    try:
        with unfinished.open("w") as file:
            for page in range(pages):
                file.write(f"page {page}\n")
                time.sleep(0.01)  # stands for the work
    except TaskTimeout:
        unfinished.unlink()  # remove the partial file
        raise
    unfinished.rename(Path(folder, "catalog"))
    return pages


@task(timeout=1, fail_on=TaskTimeout)
async def follow_parcel(folder: str, parcel: str) -> str:
    lock = Path(folder, parcel)
    lock.touch()
    try:
        await asyncio.sleep(3600)  # stands for waiting for news
    finally:
        lock.unlink()
    return "delivered"


@task(timeout=2)
def import_pages(pages: int) -> int:
    """Each page may take two seconds; the number of pages is not known in advance."""
    for page in range(pages):
        if not current_job().extend(2):
            return page  # another worker has the job now
        time.sleep(0.3)  # stands for reading a page
    return pages


def give_an_hour(job: Job) -> bool:
    return extend(job, 3600) == 1  # also: an id, a TaskResult, a queryset of jobs


@task(timeout=60)
def ask_warehouse(url: str) -> bytes:
    with urlopen(url, timeout=10) as answer:
        return answer.read(1_000_000)
