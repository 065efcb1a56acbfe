"""Print the resident megabytes of a Django process without any app that has run one query with the ORM's
backend: ``python -m benchmarks.bare_django``. What a worker uses besides is what the queue costs.
"""

from __future__ import annotations

import psutil


def main() -> None:
    """Set up Django, run a query, and print the memory."""
    import django
    from django.conf import settings

    from . import settings as ours

    settings.configure(DATABASES=ours.DATABASES, USE_TZ=True)
    django.setup()
    from django.db import connection, models  # noqa: F401 - every project has models

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    print(psutil.Process().memory_info().rss / 2**20, flush=True)


if __name__ == "__main__":
    main()
