"""Make the data of the demonstration, remove it, and say whether the database is in use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from django.db import connections, transaction

from django_pgqueue.monitoring.workers import Crew, Vital

from .crew import beat, enlist
from .history import add_up, fill, queues
from .stage import Stage
from .stories import tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .crew import Hand

#: The share of the jobs that wait.
WAITING = 0.02

_CLEAR_SQL = (Path(__file__).parent / "clear.sql").read_text(encoding="utf-8")
_OTHERS_SQL = "SELECT EXISTS (SELECT FROM pgqueue_job WHERE queue_name NOT LIKE 'demo-%%')"
_TABLES = "pgqueue_job, pgqueue_stat, pgqueue_stat_rollup, pgqueue_worker"


def used_by(alias: str) -> Iterator[str]:
    """Yield in words who else uses this database."""
    workers = sum(
        worker.vital != Vital.DEAD and not worker.host.startswith("demo-") for worker in Crew(alias).workers
    )
    if workers:
        yield f"{workers} live workers would see these jobs"
    with connections[alias].cursor() as cursor:
        cursor.execute(_OTHERS_SQL)
        if cursor.fetchone()[0]:
            yield "it has jobs of your own"


def seed(alias: str, rows: int) -> int:
    """Replace the data of the demonstration, with about so many jobs, and return how many there are."""
    with transaction.atomic(using=alias, durable=True), connections[alias].cursor() as cursor:
        # No worker has to wake up. Compiling these statements takes longer than it saves.
        cursor.execute("SET LOCAL pgqueue.notify = 'off'; SET LOCAL jit = off")
        cursor.execute(_CLEAR_SQL)
        crew = enlist(cursor)
        tell(Stage(cursor, crew))
        waiting = round(rows * WAITING)
        fill(cursor, rows - waiting, waiting, {queue: _serving(crew, queue) for queue in queues()})
        beat(cursor)
        cursor.execute("SELECT count(*) FROM pgqueue_job WHERE queue_name LIKE 'demo-%%'")
        (made,) = cursor.fetchone()
        cursor.execute(f"ANALYZE {_TABLES}")
    return int(made)


def _serving(crew: Mapping[Hand, int], queue: str) -> list[int]:
    return [pk for hand, pk in crew.items() if queue in hand.queues and hand.state != "silent"]


def clear(alias: str) -> None:
    """Remove the data of the demonstration."""
    with transaction.atomic(using=alias, durable=True), connections[alias].cursor() as cursor:
        cursor.execute(_CLEAR_SQL)
        add_up(cursor)


def keep_alive(alias: str) -> None:
    """Write the heartbeats of the workers anew, so that each of them stays in its state."""
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        beat(cursor)
