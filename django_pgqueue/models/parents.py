"""``Parents``: what a job was enqueued after, as it is now, with the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..exceptions import ParentGone
from .batch import JobBatch
from .job import Job

if TYPE_CHECKING:
    from typing import Self


class Parents(Mapping[int, Job]):
    """The jobs that a job was enqueued after, by their ids, in the order in which they were given.

    They are read together, at the first use. Batches are in `batches`.
    """

    def __init__(self, ids: Sequence[int], alias: str) -> None:
        self._ids = list(ids)
        self._alias = alias

    @classmethod
    def known(cls, jobs: Mapping[int, Job]) -> Self:
        """Return parents that need not be read."""
        parents = cls(list(jobs), "default")
        parents.__dict__.update(_jobs=dict(jobs), batches={}, results_of_batches={})
        return parents

    @cached_property
    def _jobs(self) -> dict[int, Job]:
        return Job.objects.using(self._alias).in_bulk(self._ids) if self._ids else {}

    @cached_property
    def batches(self) -> dict[int, JobBatch]:
        """The batches that the job was enqueued after, by their ids."""
        others = [each for each in self._ids if each not in self._jobs]
        found = JobBatch.objects.using(self._alias).in_bulk(others) if others else {}
        return {each: found[each] for each in others if each in found}

    @property
    def gone(self) -> list[int]:
        """The ids of those that are no longer kept, because their retention is over."""
        return [each for each in self._ids if each not in self._jobs and each not in self.batches]

    def read(self) -> None:
        """Read everything now, for async code."""
        self.results_of_batches  # noqa: B018

    @cached_property
    def results_of_batches(self) -> dict[int, list[Any]]:
        """The results of the jobs of each batch, in the order in which they were added."""
        return {each: batch.results() for each, batch in self.batches.items()}

    @property
    def results(self) -> list[Any]:
        """The results, in the order in which the parents were given.

        That of a batch is a list, with the results of its jobs in the order in which they were added. The
        result of a job that did not succeed is None. Raise ``ParentGone`` if one is no longer kept.
        """
        of_batches = self.results_of_batches
        return [of_batches[each] if each in of_batches else self[each].result for each in self._ids]

    def __getitem__(self, job: int | Job) -> Job:
        key = job.pk if isinstance(job, Job) else job
        if key in self._jobs:
            return self._jobs[key]
        if key not in self._ids:
            raise KeyError(f"The job was not enqueued after {key!r}, but after: {self._ids}")
        if key in self.batches:
            raise KeyError(f"{key} is a batch: use parents.batches[{key}]")
        raise ParentGone(
            f"Job {key} is no longer kept, so nothing is known about its end. See RETENTION, and "
            "the retention of its Queue."
        )

    def __contains__(self, job: object) -> bool:
        key = job.pk if isinstance(job, Job) else job
        return key in self._ids and key not in self.batches

    def __iter__(self) -> Iterator[int]:
        return (each for each in self._ids if each not in self.batches)

    def __len__(self) -> int:
        return len(self._ids) - len(self.batches)

    def __repr__(self) -> str:
        return f"<Parents {self._ids}>"
