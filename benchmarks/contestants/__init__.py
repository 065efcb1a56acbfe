"""The queues that are compared, one module each."""

from __future__ import annotations

from importlib import import_module

from .contract import Contestant

__all__ = ["FLOORS", "MORE_PEERS", "OURS", "OURS_AGAIN", "PEERS", "load"]

OURS = "django_pgqueue"

#: Our queue once more, in a second database, for scenarios that need one.
OURS_AGAIN = "django_pgqueue-2"

#: The peers of the default set.
PEERS = ("pgqueuer-100", "pgqueuer-1000", "procrastinate", "django-tasks-db", "django-tasks-db-0", "celery")

#: The peers that ``--full`` adds.
MORE_PEERS = ("django-ox", "oban", "awa")

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
    "awa": "awa:Awa",
    "bare-notify": "bare_notify:BareNotify",
    "bare-sql": "bare_sql:BareSql",
    "celery": "celery:Celery",
    "create": "enqueueing:Create",
    "create-in-transaction": "enqueueing:CreateInTransaction",
    "create-over-connections": "enqueueing:CreateOverConnections",
    "django-ox": "django_ox:DjangoOx",
    "django-tasks-db": "django_tasks_db:DjangoTasksDb",
    "django-tasks-db-0": "django_tasks_db:DjangoTasksDbBusy",
    "in-transaction": "enqueueing:EnqueueInTransaction",
    "loops": "loops:Loops",
    "oban": "oban:Oban",
    "over-connections": "enqueueing:EnqueueOverConnections",
    "pgqueuer-100": "pgqueuer:PgQueuer100",
    "pgqueuer-1000": "pgqueuer:PgQueuer1000",
    "procrastinate": "procrastinate:Procrastinate",
    "unnest": "enqueueing:Unnest",
}


def load(name: str) -> Contestant:
    """Return the contestant with this name."""
    module, _, attribute = _MODULES[name].partition(":")
    contestant: Contestant = getattr(import_module(f"{__name__}.{module}"), attribute)()
    return contestant
