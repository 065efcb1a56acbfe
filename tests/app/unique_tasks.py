"""Tasks whose calls are unique in some way."""

from __future__ import annotations

from datetime import timedelta

from django_pgqueue import Snooze, Unique, current_job, task

from .worker_tasks import hold


@task(unique=Unique(key="document_id"))
def index(document_id: int, force: bool = False) -> None:
    """Wait once for each document."""


@task(unique=Unique(scope="live"), queue_name="mail")
def sync(account_id: int) -> None:
    """Live once for each account."""


@task(unique=Unique(window=timedelta(hours=1)))
def remind(user_id: int) -> None:
    """Be enqueued at most once in an hour for each user."""


@task(unique=Unique(key="document_id", on_conflict="replace"), expires_after=timedelta(hours=1))
def render(document_id: int, text: str = "") -> None:
    """Wait once for each document, with the newest text."""


@task(unique=Unique(on_conflict="earliest"))
def refresh(name: str) -> None:
    """Wait once for each name, at the earliest of the requested times."""


@task(unique=Unique(on_conflict="raise"))
def once(name: str) -> None:
    """Refuse a second call."""


@task
def hold_and_snooze(name: str) -> None:
    """Report that it runs, wait for the test, and go back to waiting."""
    hold.func(name)
    raise Snooze(timedelta(hours=1))


@task
def own_key() -> str | None:
    """Return the key of its own job."""
    return current_job().unique_key
