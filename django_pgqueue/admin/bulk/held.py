"""The jobs that an action holds, and which of them it has changed.

The functions of the queue return how many jobs they have changed, but not which. Nobody else can change a row
that is locked, so a job has changed if its row is another version than before, or is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.models import TextField
from django.db.models.expressions import RawSQL

from ...models import Job

if TYPE_CHECKING:
    from django.db.models import QuerySet

__all__ = ["Held", "hold"]

#: The leaf and the place in it: each UPDATE writes a version in another place.
_VERSION = "(pgqueue_job.tableoid, pgqueue_job.ctid)::text"


class Held(NamedTuple):
    """Jobs whose rows are locked until the end of the transaction."""

    alias: str
    rows: list[tuple[int, str, int, str]]
    """Of each job: the id, the path of the task, the shelf, the version of the row."""

    @property
    def jobs(self) -> QuerySet[Job]:
        """These jobs, and no other."""
        shelves = sorted({shelf for _pk, _path, shelf, _version in self.rows})  # the plan leaves out others
        rows = Job.objects.using(self.alias)
        return rows.filter(pk__in=[pk for pk, _path, _shelf, _version in self.rows], shelf__in=shelves)

    def changed(self) -> list[Job]:
        """Return the jobs that have changed since, with their ids and paths."""
        ids = [pk for pk, _path, _shelf, _version in self.rows]
        now = dict(_versions(Job.objects.using(self.alias).filter(pk__in=ids)).values_list("pk", "version"))
        return [
            Job(pk=pk, task_path=path) for pk, path, _shelf, version in self.rows if now.get(pk) != version
        ]


def hold(locked: QuerySet[Job], most: int) -> Held:
    """Lock jobs and return them, but no more than ``most``."""
    rows = _versions(locked).values_list("pk", "task_path", "shelf", "version")
    return Held(locked.db, list(rows[:most]))


def _versions(jobs: QuerySet[Job]) -> QuerySet[Any]:
    version = RawSQL(_VERSION, (), TextField())  # noqa: S611 - a constant
    return jobs.annotate(version=version)
