"""The batches as rows: what ``Batch`` calls to open, close, cancel, retry and count one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from django.db import connections

from ..exceptions import ParentGone
from ..models import JobBatch
from ..models.batch import counts_of
from .mistakes import MISTAKES, explained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..models import BatchCounts

__all__ = ["ROWS", "BatchRows", "BatchStore"]

_OPEN_SQL = "SELECT pgqueue_open_batch_v1(%s)"
_CLOSE_SQL = "SELECT pgqueue_close_batch_v1(%s)"
_CANCEL_SQL = "SELECT pgqueue_cancel_batch_v1(%s)"
_RETRY_SQL = "SELECT pgqueue_retry_batch_v1(%s)"


class BatchStore(Protocol):
    """Where batches are. In tests it may be the memory."""

    in_memory: bool
    """Whether there are no rows."""

    def open(self, alias: str, name: str) -> int:
        """Open a batch, and return its id."""

    def close(self, alias: str, batch: int) -> None:
        """Let it end when none of its jobs is live."""

    def cancel(self, alias: str, batch: int) -> int:
        """Cancel its jobs, and return how many."""

    def retry(self, alias: str, batch: int) -> int:
        """Run its failed jobs again, and return how many."""

    def row(self, alias: str, batch: int) -> JobBatch:
        """Read it. Raise ``JobBatch.DoesNotExist``."""

    def counts(self, alias: str, batch: int) -> BatchCounts:
        """Count its jobs."""


class BatchRows:
    """The store that workers see."""

    in_memory = False

    def open(self, alias: str, name: str) -> int:
        """Open a batch, and return its id."""
        return int(_call(alias, _OPEN_SQL, [name]))

    def close(self, alias: str, batch: int) -> None:
        """Let it end when none of its jobs is live."""
        _call(alias, _CLOSE_SQL, [batch])

    def cancel(self, alias: str, batch: int) -> int:
        """Cancel its jobs, and return how many."""
        return int(_call(alias, _CANCEL_SQL, [batch]))

    def retry(self, alias: str, batch: int) -> int:
        """Run its failed jobs again, and return how many."""
        return int(_call(alias, _RETRY_SQL, [batch]))

    def row(self, alias: str, batch: int) -> JobBatch:
        """Read it. Raise ``JobBatch.DoesNotExist``."""
        try:
            return JobBatch.objects.using(alias).get(pk=batch)
        except JobBatch.DoesNotExist:
            raise JobBatch.DoesNotExist(
                f"Batch {batch} is not in the database {alias!r}. Either the transaction that opened it has "
                "not committed or was rolled back, or the batch is over and no longer kept."
            ) from None

    def counts(self, alias: str, batch: int) -> BatchCounts:
        """Count its jobs."""
        return counts_of(alias, [batch])[batch]


#: The store of calls that are written.
ROWS = BatchRows()


def _call(alias: str, query: str, parameters: Sequence[Any]) -> Any:
    try:
        with connections[alias].cursor() as cursor:
            cursor.execute(query, parameters)
            (value,) = cursor.fetchone()
    except MISTAKES as error:
        explanation = explained(error, alias)
        if isinstance(explanation, ParentGone):  # for a new job, the batch would be a parent
            explanation = JobBatch.DoesNotExist(str(explanation))
        raise explanation from error.__cause__
    return value
