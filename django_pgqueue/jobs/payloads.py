"""Write payloads with the keys of their jobs, which are in the same transaction already.

The jobs come first, because only the enqueue knows their options; the trigger of the table finds them there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import ProgrammingError
from django.db.models.expressions import DatabaseDefault

from ..exceptions import CancelJob
from ..postgres.roles import filtered
from ..tasks.unique import EnqueueOutcome


def store_one(alias: str, payload: Any, job_id: int, outcome: EnqueueOutcome) -> None:
    """Save a payload with its ``save()``. That of a job which exists already, and stays as it is, is not
    saved; if the call has replaced the job, its payload takes the place of the other one.
    """
    if outcome == "existing":
        return
    before = payload.job_id
    payload.job_id = job_id
    try:
        is_new = outcome == "created"
        payload.save(force_insert=is_new, force_update=not is_new, using=alias)
        if payload._state.adding:
            raise RuntimeError(
                f"{type(payload).__qualname__}.save() has not saved the payload of job {job_id}."
            )
    except BaseException:
        _forget(payload, before)
        raise


def store_calls(alias: str, calls: Sequence[Any], done: list[tuple[int, EnqueueOutcome]]) -> None:
    """Write the payloads of the calls that have one, by ``bulk_create()``, so without ``save()``, except for
    a model with several tables. ``done``: the ids and outcomes of their jobs.
    """
    rows = [(call.payload, *each) for call, each in zip(calls, done, strict=True) if call.payload is not None]
    if len({id(payload) for payload, _, _ in rows}) < len(rows):
        raise ValueError("enqueue_many(): one payload is in several calls. Each call needs its own instance.")
    befores = [(payload, payload.job_id) for payload, _, _ in rows]
    new: defaultdict[Any, list[Any]] = defaultdict(list)
    try:
        for payload, job_id, outcome in rows:
            if outcome == "created" and not payload._meta.concrete_model._meta.parents:
                payload.job_id = job_id
                new[type(payload)].append(payload)
            else:  # bulk_create() refuses models with several tables
                store_one(alias, payload, job_id, outcome)
        for model, group in new.items():
            model._base_manager.using(alias).bulk_create(group)
    except BaseException:
        for payload, before in befores:
            _forget(payload, before)
        raise


def _forget(payload: Any, before: int | DatabaseDefault | None) -> None:
    """Let a payload be new again, so that it can be enqueued once more."""
    payload.job_id = before
    payload._state.adding = True


def load(model: Any, alias: str, ids: Iterable[int]) -> dict[int, Any]:
    """Return the rows that exist, by id. The base manager is used, because no row may be hidden."""
    found: dict[int, Any] = model._base_manager.using(alias).in_bulk(list(ids))
    return found


def missing(model: Any, alias: str) -> Exception:
    """Return what ends an attempt whose row does not exist. A user has deleted it, or emptied the table:
    then the job is cancelled. If a policy hides rows, the reason is unknown, and the attempt fails.
    """
    table = model._meta.db_table
    if hidden := filtered(
        alias, [table, *(parent._meta.db_table for parent in model._meta.get_parent_list())]
    ):
        return ProgrammingError(
            f"The row of this job in {table} does not exist, or row-level security hides it from this role: "
            f"it applies to {', '.join(hidden)}. Give the role of the workers BYPASSRLS, or a policy."
        )
    return CancelJob(f"its row in {table} does not exist")
