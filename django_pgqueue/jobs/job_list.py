"""``JobList``: the jobs of a bulk, of which only the ids and the outcomes are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, overload

from ..models import Job
from ..tasks.unique import EnqueueOutcome

if TYPE_CHECKING:
    from typing import Self


class JobList(Sequence[Job]):
    """The jobs of ``enqueue_many()`` and ``Batch.add()``, in the order of the calls.

    Nothing has been read: an item has its ``id`` and its ``enqueue_outcome``, and reads its row when another
    field is used. In async code, write ``await job.arefresh_from_db()`` first.
    """

    __slots__ = ("_alias", "_jobs", "enqueue_outcomes", "ids")

    def __init__(
        self, alias: str | None, done: Iterable[tuple[int, EnqueueOutcome]], jobs: Iterable[Job] = ()
    ) -> None:
        pairs = list(done)
        self._alias = alias
        self._jobs = dict(enumerate(jobs))
        self.ids: list[int] = [job_id for job_id, _ in pairs]
        """The id of the job of each call."""
        self.enqueue_outcomes: list[EnqueueOutcome] = [outcome for _, outcome in pairs]
        """For each call "created", "existing" or "replaced"; see ``enqueue()``."""

    @classmethod
    def of(cls, jobs: Iterable[Job]) -> Self:
        """Return a list of jobs that are known."""
        known = list(jobs)
        return cls(None, [(job.pk, job.enqueue_outcome or "created") for job in known], known)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Job: ...

    @overload
    def __getitem__(self, place: slice) -> Self: ...

    def __getitem__(self, place: int | slice) -> Job | Self:
        places = range(len(self.ids))[place]
        if isinstance(places, int):
            return self._job(places)
        return type(self)(
            self._alias,
            [(self.ids[each], self.enqueue_outcomes[each]) for each in places],
            [self._job(each) for each in places],
        )

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.ids[:10]))
        return f"<JobList of {len(self)}: {shown}{', ...' if len(self) > 10 else ''}>"

    def _job(self, place: int) -> Job:
        job = self._jobs.get(place)
        if job is None:
            job = self._jobs[place] = Job.from_db(self._alias, ["id"], [self.ids[place]])
            job.enqueue_outcome = self.enqueue_outcomes[place]
        return job
