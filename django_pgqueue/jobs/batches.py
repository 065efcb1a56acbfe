"""``Batch``: jobs that are counted, waited for, cancelled and retried together.

A batch has finished when it is closed and none of its jobs is live. While it is open, jobs that end do not
end it, so that its first jobs may run while its last ones are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Any, Literal, Never, Self, TypeAlias

from asgiref.sync import sync_to_async
from django.db import transaction

from ..compat import for_async
from ..exceptions import ParentGone
from ..models import BatchCounts, Job, JobBatch, JobQuerySet
from ..models.batch import counts_of
from ..postgres import fetch_value
from ..tasks.call import as_ours, call_options, several
from ..tasks.links import IfFailed, Link
from ..tasks.misuse import Habits, hints
from ..tasks.routing import default_backend
from ..tasks.task import BoundTask
from .enqueue import MISTAKES, JobList, enqueue, enqueue_many, explained

BatchAction: TypeAlias = Literal["open", "close", "cancel", "retry"]
_LONGEST_NAME = 200
_NOT_OPEN = (
    "It was never opened, or its block was rolled back. Write: with Batch(...) as batch, or Batch.open(...)."
)


@hints
class Batch(Habits):
    """A batch of jobs. ``name`` is for people; ``using`` is the alias of its database.

        with Batch("import") as batch:
            batch.add(load.bind(row.pk) for row in rows)
            enqueue(report.using(after=batch))

    The block is one transaction. The batch and its jobs appear together, or not at all. For one that grows
    over several transactions, use `Batch.open`, and `close` it.

    Async code calls a function with such a block by ``sync_to_async``, or `aopen`, because Django has no
    async transactions.
    """

    is_batch = True
    _block: AbstractContextManager[None]
    _kind = "a batch"

    def __init__(self, name: str = "", *, using: str | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(
                f"Batch(name) takes a string, not {type(name).__name__}. Write: with Batch() as batch: "
                "batch.add([task.bind(...)])"
            )
        if len(name) > _LONGEST_NAME or "\0" in name:
            raise ValueError(
                f"The name of a batch has at most {_LONGEST_NAME} characters, and no NUL: {name!r:.60}"
            )
        self._name = name
        self._alias = using or default_backend().home()
        self._id: int | None = None
        self._row: JobBatch | None = None

    def __repr__(self) -> str:
        number = "not open" if self._id is None else self._id
        return f"<Batch {number}{f' {self._name!r}' if self._name else ''}>"

    @classmethod
    def open(cls, name: str = "", *, using: str | None = None) -> Self:
        """Open a batch without a block. It can finish only after `close`."""
        batch = cls(name, using=using)
        batch._open()
        return batch

    @classmethod
    async def aopen(cls, name: str = "", *, using: str | None = None) -> Self:
        """Like `open`, for async code."""
        return await sync_to_async(cls.open)(name, using=using)

    @classmethod
    def get(cls, batch: int, *, using: str | None = None) -> Self:
        """Return the batch with this id, and read it. Raise ``JobBatch.DoesNotExist``."""
        if isinstance(batch, bool) or not isinstance(batch, int):
            raise TypeError(f"Batch.get(batch) takes the id of a batch, an int, not {batch!r:.100}.")
        found = cls.of(batch, using or default_backend().home())
        found.refresh()
        return found

    @classmethod
    async def aget(cls, batch: int, *, using: str | None = None) -> Self:
        """Like `get`, for async code."""
        return await sync_to_async(cls.get)(batch, using=using)

    @classmethod
    def of(cls, batch: int, alias: str) -> Self:
        """Return a batch that is known to exist. It is read when one of its values is used."""
        found = cls(using=alias)
        found._id = batch
        return found

    def close(self) -> None:
        """Let the batch end as soon as none of its jobs is live, or now if there is none.

        Its own jobs may still add others, because none of them ends before its task does.
        """
        self._change("close")

    aclose = for_async(close)

    def __enter__(self) -> Self:
        block = self._transaction()
        block.__enter__()
        self._block = block  # not before: the batch may be open in a block that goes on
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._block.__exit__(*error)

    async def __aenter__(self) -> Never:
        raise TypeError(
            "A batch as a block is a transaction, and Django has no async ones. Put the block into a "
            "function, and call that with sync_to_async; or write await Batch.aopen(...), and await "
            "batch.aclose()."
        )

    async def __aexit__(self, *_: object) -> None: ...

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with nullcontext() if self._store.in_memory else transaction.atomic(using=self._alias):
            self._open()
            try:
                yield
                self.close()
            except BaseException:
                self._id = None  # it is rolled back
                raise

    def _open(self) -> None:
        if self._id is not None:
            raise ValueError(f"{self!r} was opened before. Make another Batch.")
        self._id = self._store.change(self._alias, "open", self._name)

    def add(self, calls: Iterable[BoundTask], /) -> JobList:
        """Enqueue calls (``task.bind(...)``) as jobs of this batch, all or none, and return the jobs.

        The iterable may be a generator and may mix tasks, as with ``enqueue_many()``, whose exceptions this
        raises. Raise ``BatchFinished`` if the batch has finished. A task that names no database goes to that
        of the batch.
        """
        return enqueue_many(self._bound(several(calls, "Batch.add")))

    aadd = for_async(add)

    def _bound(self, calls: Iterable[BoundTask]) -> Iterator[BoundTask]:
        """Yield the calls with this batch. Each task gets one variant, so that it is checked once."""
        variants: dict[int, tuple[Any, Any]] = {}
        for call in calls:
            if id(call.task) not in variants:
                variant = call.task.using(batch=self, database=call.task.database or self._alias)
                variants[id(call.task)] = (call.task, variant)
            yield BoundTask(variants[id(call.task)][1], call.args, call.kwargs)

    @property
    def jobs(self) -> JobQuerySet:
        """The jobs of the batch that are live or still kept, as a queryset."""
        return Job.objects.using(self._alias).filter(batch_id=self.id)

    def cancel(self) -> int:
        """Close the batch and cancel its jobs; running ones are asked to stop. Return how many."""
        return self._change("cancel")

    acancel = for_async(cancel)

    def retry_failed(self) -> int:
        """Run the failed jobs of the batch again, and return how many. A finished batch goes on."""
        return self._change("retry")

    aretry_failed = for_async(retry_failed)

    def _change(self, action: BatchAction) -> int:
        changed = self._store.change(self._alias, action, self.id)
        self._row = None
        return changed

    def counts(self) -> BatchCounts:
        """Count its jobs: ``added``, ``done``, ``failed``, ``cancelled`` and ``live``. This is a query."""
        return self._store.counts(self._alias, self.id)

    acounts = for_async(counts)

    def refresh(self) -> None:
        """Read the batch again."""
        self._row = self._store.row(self._alias, self.id)
        self._name = self._row.name

    arefresh = for_async(refresh)

    @property
    def id(self) -> int:
        """Its id. It is not that of a job. Raise ``ValueError`` if the batch is not open yet."""
        if self._id is None:
            raise ValueError(f"{self!r} has no id. {_NOT_OPEN}")
        return self._id

    @property
    def database(self) -> str:
        """The alias of its database."""
        return self._alias

    @property
    def name(self) -> str:
        """Its name."""
        return self._name if self._name or self._id is None else self._read.name

    @property
    def is_open(self) -> bool:
        """Whether it was not closed yet, as it was last read."""
        return self._read.is_open

    @property
    def is_finished(self) -> bool:
        """Whether all of its jobs have finished, as it was last read."""
        return self._read.finished_at is not None

    @property
    def finished_at(self) -> datetime | None:
        """When it finished, as it was last read."""
        return self._read.finished_at

    @property
    def outcome(self) -> str:
        """How it ended, as last read: "done", or "failed" or "cancelled" if a job was. Empty: not yet."""
        return self._read.outcome

    def join(self, timeout: float | timedelta | None = None) -> Self:
        """Wait until the batch has finished, read it, and return it. See `Job.join`."""
        self._row = self._read.join(timeout)
        return self

    async def ajoin(self, timeout: float | timedelta | None = None) -> Self:
        """Like `join`, for async code."""
        if self._row is None:
            await self.arefresh()
        self._row = await self._read.ajoin(timeout)
        return self

    def as_link(self) -> Link:
        """Return where it is, for ``task.using(after=..., batch=...)``."""
        if self._id is None:
            raise ValueError(f"{self!r} cannot be used. {_NOT_OPEN}")
        return Link(self._alias, self._id, not self._store.in_memory)

    @property
    def _read(self) -> JobBatch:
        """Its row as it was last read; the first use reads it."""
        if self._row is None:
            self.refresh()
            assert self._row is not None
        return self._row

    @property
    def _store(self) -> BatchRows:
        keeper = default_backend().keeper
        return BatchRows() if keeper is None else keeper


class BatchRows:
    """The batches of the database, which workers see. Backends for tests have others."""

    in_memory = False  # whether there are no rows, and the jobs are none, either

    def change(self, alias: str, action: BatchAction, batch: int | str) -> int:
        """Open a batch of this name, and return its id; or change one, and return how many jobs changed."""
        try:
            return int(fetch_value(alias, f"SELECT pgqueue_{action}_batch(%s)", batch) or 0)
        except MISTAKES as error:
            explanation = explained(error, alias)
            if isinstance(explanation, ParentGone):  # for a new job, the batch would be a parent
                explanation = JobBatch.DoesNotExist(str(explanation))
            raise explanation from error.__cause__

    def row(self, alias: str, batch: int) -> JobBatch:
        """Read it. Raise ``JobBatch.DoesNotExist``."""
        try:
            return JobBatch.objects.using(alias).get(pk=batch)
        except JobBatch.DoesNotExist:
            raise JobBatch.DoesNotExist(
                f"Batch {batch} is not in the database {alias!r}. Either the transaction that opened it has "
                "not committed or was rolled back, or the batch has finished and is no longer kept."
            ) from None

    def counts(self, alias: str, batch: int) -> BatchCounts:
        """Count its jobs."""
        return counts_of(alias, [batch])[batch]


def chain(calls: Iterable[BoundTask], /, *more: Never, if_failed: IfFailed = "hold") -> list[Job]:
    """Enqueue calls (``task.bind(...)``) of which each waits for the one before, all or none.

    Return their jobs in this order. ``if_failed``: how a job reacts if the one before it has failed: "hold"
    waits for its retry, "cancel" cancels the rest of the chain, and "run" continues with it. A call that has
    an `after` of its own waits for that, too.

    Raise the same exceptions as ``enqueue()``, and ``TypeError`` for something that is not a call.
    """
    if more:
        raise TypeError("chain() takes one list of calls. Write chain([a, b]), not chain(a, b).")
    steps = list(several(calls, "chain"))
    if not steps:
        return []
    options = call_options(as_ours(steps[0].task))
    in_memory = options.keeper is not None and options.keeper.in_memory
    jobs: list[Job] = []
    with nullcontext() if in_memory else transaction.atomic(using=options.alias):
        for call in steps:
            task = as_ours(call.task)
            if jobs:
                own = task.links.after if task.links is not None else ()
                task = task.using(after=[*own, jobs[-1]], if_failed=if_failed)
            jobs.append(enqueue(BoundTask(task, call.args, call.kwargs)))
    return jobs


achain = for_async(chain)
