from django_pgqueue import current_job, task

from .download import count_pages, download
from .plain import save_prices


@task
def import_prices(supplier: str) -> int:
    job = current_job()
    prices: dict[str, int] = {}
    for page in range(1, job.step("count", count_pages, supplier) + 1):
        prices |= job.step(f"page {page}", download, supplier, page)
    return job.atomic_step("save", save_prices, supplier, prices)
