"""What is always true: each row is as the model says, lines move, and claims take the first jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tests.support.sessions import Connection

from .model import Expected, Model

__all__ = ["KEPT", "check", "check_put_aside", "check_turn", "forget_dropped", "places", "stuck"]

KEPT = {"done": 7.0, "cancelled": 7.0, "failed": 30.0}
"""Days for which jobs are kept that are over."""
ROWS = (
    "SELECT id, status, shelf, priority, attempts, forgiven_attempts, crash_count, lost_in_a_row, lease,"
    " worker, cancel_requested_at IS NOT NULL, run_after <= clock_timestamp(), limit_key, unique_key"
    " FROM pgqueue_job ORDER BY id"
)

Places = Mapping[int, tuple[Any, ...]]


def check(connection: Connection, model: Model, workers: Collection[int]) -> None:
    """Compare all rows with the model."""
    rows = connection.execute(ROWS).fetchall()
    found = [row[0] for row in rows]
    assert found == sorted(model.jobs), f"the jobs are {found}, not {sorted(model.jobs)}"
    lines = defaultdict(set)
    for row in rows:
        _compare(model.jobs[row[0]], *row[1:])
        if row[12] is not None and row[2] == 0:
            lines[row[12]].add(row[1])
    still = [key for key, statuses in lines.items() if statuses == {"blocked"}]
    assert not still, f"nobody will release the line of {still}"
    running = [model.jobs[pk] for pk in model.of("running")]
    keyed = [job.limit for job in running if job.limit]
    assert len(keyed) == len(set(keyed)), f"two jobs of a key run: {keyed}"
    owners = {job.worker for job in running}
    assert owners <= set(workers), f"jobs are left to {owners}, and only {workers} are registered"


def _compare(
    job: Expected, status: str, shelf: int, priority: int, attempts: int, forgiven: int, crashes: int,
    lost: int, lease: int | None, worker: int | None, is_asked: bool, is_due: bool, limit: str | None,
    unique: str | None,
) -> None:  # fmt: skip
    if job.status == "waiting":
        usual = {"retry" if attempts else "pending", "pending"} | ({"blocked"} if limit else set())
        assert status in usual, f"job {job.pk} is {status}, and should wait"
        assert is_due == job.is_due or status == "blocked", f"job {job.pk}: due {is_due}, not {job.is_due}"
    else:
        assert status == job.status, f"job {job.pk} is {status}, not {job.status}"
    assert (shelf == 0) == job.is_live, f"job {job.pk} is {status} and on the shelf {shelf}"
    given = (priority, attempts, forgiven, limit, unique)
    expected = (job.priority, job.attempts, job.forgiven, job.limit, job.unique)
    assert given == expected, f"job {job.pk} has {given}, not {expected}"
    if job.is_live:
        held = (crashes, lost, lease, worker, is_asked)
        held_by = (job.crash_count, job.lost_in_a_row, job.lease, job.worker, job.is_asked)
        assert held == held_by, f"job {job.pk} has {held}, not {held_by}"


def places(connection: Connection) -> Places:
    """Return where the jobs without a limit key stand."""
    query = "SELECT id, -priority, run_after FROM pgqueue_job_live WHERE limit_key IS NULL"
    return {pk: (*place, pk) for pk, *place in connection.execute(query).fetchall()}


def check_turn(model: Model, claimed: Sequence[int], before: Places, *, may_take_more: bool) -> None:
    """Check that a claim has passed over no job without a limit key."""
    left = [before[pk] for pk in model.of("waiting") if pk in before and model.jobs[pk].is_due]
    assert not (left and may_take_more), f"the claim has left jobs that are due: {left}"
    taken = [before[pk] for pk in claimed if pk in before]
    assert not (left and taken) or max(taken) < min(left), f"{max(taken)} was claimed before {min(left)}"


def check_put_aside(connection: Connection, model: Model, claimed: Sequence[int]) -> int:
    """Let a claim by SQL end the jobs that have expired, or have no attempts left, and return how many."""
    ended = 0
    for pk, status in connection.execute("SELECT id, status FROM pgqueue_job").fetchall():
        job = model.jobs[pk]
        if job.status == "waiting" and job.is_due and (job.is_expired or job.is_exhausted):
            assert pk not in claimed, f"job {pk} was claimed and should not run"
            if status in ("cancelled", "failed"):
                assert status == ("cancelled" if job.is_expired else "failed")
                job.status = status
                ended += 1
            else:
                assert claimed or job.limit, f"job {pk} should be over"
    return ended


def stuck(model: Model) -> set[str]:
    """Return the keys that have a free slot and jobs that are due."""
    running = {model.jobs[pk].limit for pk in model.of("running")}
    waiting = {
        job.limit
        for job in model.jobs.values()
        if job.status == "waiting" and job.is_due and not job.is_expired and not job.is_exhausted
    }
    return {key for key in waiting - running if key}


def forget_dropped(connection: Connection, model: Model) -> None:
    """Let the model forget what maintenance has dropped, if it was old enough."""
    left = {row[0] for row in connection.execute("SELECT id FROM pgqueue_job").fetchall()}
    for job in list(model.jobs.values()):
        if job.pk not in left:
            assert not job.is_live, f"job {job.pk} is lost"
            assert job.age >= KEPT[job.status], f"job {job.pk} was dropped after {job.age} days"
            del model.jobs[job.pk]
        elif job.status == "failed":
            assert job.age <= KEPT["failed"], f"job {job.pk} is kept for too long"
