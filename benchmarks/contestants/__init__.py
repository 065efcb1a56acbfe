"""The queues that are compared, one module each."""

from __future__ import annotations

from importlib import import_module

from .contract import Contestant

__all__ = ["FLOORS", "OURS", "OURS_AGAIN", "OURS_BEST", "PEERS", "load"]

OURS = "django_pgqueue"
OURS_BEST = f"{OURS}-best"

#: Our queue once more, in a second database, for scenarios that need one.
OURS_AGAIN = f"{OURS}-2"

#: What we are compared with. River has a client for Python, ``riverqueue``, but it only inserts jobs: its
#: workers are programs in Go, so it does not take part.
PEERS = (
    OURS_BEST,
    "pgqueuer",
    "pgqueuer-best",
    "procrastinate",
    "procrastinate-best",
    "django-tasks-db",
    "django-tasks-db-best",
    "celery",
    "celery-best",
    "oban",
    "oban-best",
    "django-ox",
    "django-ox-best",
    "awa",
    "awa-best",
)

#: What is measured without a queue.
FLOORS = (
    "bare-sql",
    "loops",
    "bare-notify",
    "create",
    "create-in-transaction",
    "create-over-connections",
    "unnest",
)

_MODULES = {
    OURS: "ours:Ours",
    OURS_AGAIN: "ours:OursAgain",
    OURS_BEST: "ours:OursBest",
    "awa": "awa:Awa",
    "awa-best": "awa:AwaBest",
    "celery": "celery:Celery",
    "celery-best": "celery:CeleryBest",
    "django-ox": "django_ox:DjangoOx",
    "django-ox-best": "django_ox:DjangoOxBest",
    "django-tasks-db": "django_tasks_db:DjangoTasksDb",
    "django-tasks-db-best": "django_tasks_db:DjangoTasksDbBest",
    "oban": "oban:Oban",
    "oban-best": "oban:ObanBest",
    "pgqueuer": "pgqueuer:PgQueuer",
    "pgqueuer-best": "pgqueuer:PgQueuerBest",
    "procrastinate": "procrastinate:Procrastinate",
    "procrastinate-best": "procrastinate:ProcrastinateBest",
    "bare-notify": "bare_notify:BareNotify",
    "bare-sql": "bare_sql:BareSql",
    "create": "enqueueing:Create",
    "create-in-transaction": "enqueueing:CreateInTransaction",
    "create-over-connections": "enqueueing:CreateOverConnections",
    "in-transaction": "enqueueing:EnqueueInTransaction",
    "loops": "loops:Loops",
    "over-connections": "enqueueing:EnqueueOverConnections",
    "unnest": "enqueueing:Unnest",
}


def load(name: str) -> Contestant:
    """Return the contestant with this name."""
    module, _, attribute = _MODULES[name].partition(":")
    contestant: Contestant = getattr(import_module(f"{__name__}.{module}"), attribute)()
    return contestant
