"""Stands for the web site of a supplier, which takes a second for each page of its price list."""

import time

SECONDS = 1.0
PAGES = 5


def count_pages(supplier: str) -> int:
    return PAGES


def download(supplier: str, page: int) -> dict[str, int]:
    """Return the prices on a page, in cents."""
    print(f"downloading page {page} of {supplier}", flush=True)
    time.sleep(SECONDS)
    return {f"{supplier}-{page}{letter}": 100 * page + number for number, letter in enumerate("abc")}
