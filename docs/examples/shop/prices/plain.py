from django_pgqueue import task

from ..models import Price
from .download import count_pages, download


@task
def import_prices(supplier: str) -> int:
    prices: dict[str, int] = {}
    for page in range(1, count_pages(supplier) + 1):
        prices |= download(supplier, page)
    return save_prices(supplier, prices)


def save_prices(supplier: str, prices: dict[str, int]) -> int:
    rows = [Price(supplier=supplier, article=article, cents=cents) for article, cents in prices.items()]
    Price.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["article"], update_fields=["cents", "public"]
    )
    return len(rows)
