"""A task that leaves a row on the shard of its job. See tests/chaos/shards.py."""

from __future__ import annotations

import time

from django_pgqueue import current_job, task
from tests.app.models import Entry

MARK = "mark of a shard"


@task(atomic=True, spread="number", max_attempts=1000, backoff=0)
def mark(number: int, seconds: float = 0.0) -> None:
    Entry.objects.using(current_job().database).create(key=MARK, note=str(number))
    time.sleep(seconds)
