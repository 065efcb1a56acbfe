"""Tasks whose calls are unique in some way."""

from __future__ import annotations

from datetime import timedelta

from django_pgqueue import Unique, task


@task(unique=Unique(by=("document_id",)))
def index(document_id: int, force: bool = False) -> None:
    """Wait once for each document."""


@task(unique=Unique(scope="live"), queue_name="mail")
def sync(account_id: int) -> None:
    """Live once for each account."""


@task(unique=Unique(window=timedelta(hours=1)))
def remind(user_id: int) -> None:
    """Be enqueued at most once in an hour for each user."""


@task(unique=Unique(by=("document_id",), on_conflict="replace"), expires_after=timedelta(hours=1))
def render(document_id: int, text: str = "") -> None:
    """Wait once for each document, with the newest text."""


@task(unique=Unique(on_conflict="earliest"))
def refresh(name: str) -> None:
    """Wait once for each name, at the earliest of the requested times."""


@task(unique=Unique(on_conflict="raise"))
def once(name: str) -> None:
    """Refuse a second call."""
