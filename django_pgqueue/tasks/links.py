"""What ties a call to jobs and batches: its parents, and the batch that it belongs to; and the
public ids of jobs.

``task.using(after=..., if_failed=..., batch=...)`` checks what can be known without a database, and the
enqueue checks the rest. A task stores it as one value, because only few calls have it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from django.db import DEFAULT_DB_ALIAS

from ..compat import InvalidTask, TaskResult
from ..encoding import MAX_BIGINT, whole_number

IfFailed = Literal["hold", "cancel", "run"]
"""What a job does whose parent has failed: wait for its retry, be cancelled, or run."""

#: The bits of ``marks`` of a job after which others were enqueued, and of one that belongs to a batch.
HAS_CHILDREN = 2
IN_BATCH = 4

#: A job that is to wait for more takes a batch. Edges are written, locked and deleted one by one.
MOST_PARENTS = 100


@dataclass(frozen=True, slots=True)
class Link:
    """A job or a batch to which a call is tied."""

    alias: str | None  # the database that it was read from; None: that of the call
    id: int
    is_row: bool = True  # whether it is in a database. The jobs of dummy mode are not.
    row: Any = field(default=None, compare=False, repr=False)
    """The row, if there is one: the router may name another alias for it, which only a query can check."""

    def as_link(self) -> Link:
        """Return itself."""
        return self


class Links(NamedTuple):
    """To what a call is tied."""

    after: tuple[Link, ...] = ()
    if_failed: IfFailed = "hold"
    batch: Link | None = None


@runtime_checkable
class Linkable(Protocol):
    """What a call can wait for, besides ids and results: a ``Job``, a ``Batch``."""

    def as_link(self) -> Link:
        """Return where it is. Raise ValueError if it is nowhere."""


@runtime_checkable
class BatchLike(Linkable, Protocol):
    """What a call can belong to: a ``Batch``, a ``JobBatch``."""

    @property
    def is_batch(self) -> bool:
        """True."""


if TYPE_CHECKING:
    Parent = Linkable | TaskResult[Any, Any] | int
    After = Parent | Iterable[Parent]


def changed_links(task: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """Move ``after``, ``if_failed`` and ``batch`` from the changes of a task into its new ``links``. Refuse a
    unique key whose other job would have to change what it waits for, or its batch.
    """
    given = {name: changes.pop(name) for name in ("after", "if_failed", "batch") if name in changes}
    links = (task.links or Links())._replace(**given)
    if "if_failed" in given and not links.after and "after" not in given:
        raise InvalidTask("if_failed says what a job does whose parent fails. Pass the parent: after=job.")
    if links.batch is not None and links.batch.id in {link.id for link in links.after}:
        raise InvalidTask(
            f"The call is to belong to the batch {links.batch.id}, and to run after it. It would wait for "
            "itself. Leave out batch= for a job that runs when the batch has finished."
        )
    unique = changes.get("unique", task.unique)
    if links != Links() and unique is not None and unique.on_conflict in ("replace", "earliest"):
        raise InvalidTask(
            f"Unique(on_conflict={unique.on_conflict!r}) changes the job with the key, but that job keeps "
            "what it waits for and its batch. Use on_conflict='existing' or 'raise' with after= or batch=."
        )
    return {**changes, "links": None if links == Links() else links}


def after(value: Any) -> tuple[Link, ...]:
    """Return what a call waits for, each once, in the order given. Raise InvalidTask."""
    is_many = isinstance(value, Iterable) and not isinstance(value, (str, bytes, dict, Linkable))
    found = tuple(dict.fromkeys(_link("after", each) for each in (value if is_many else [value])))
    if len(found) > MOST_PARENTS:
        raise InvalidTask(
            f"after has {len(found):,} jobs, but a job can wait for {MOST_PARENTS}. "
            "Put them into a Batch, and pass that."
        )
    return found


def batch(value: Any) -> Link:
    """Return the batch that a call belongs to. Raise InvalidTask."""
    if isinstance(value, (BatchLike, int)):
        return _link("batch", value)
    hint = " Open one: with Batch('name') as batch." if isinstance(value, str) else ""
    raise InvalidTask(f"batch must be a Batch or its id. It is {value!r}.{hint}")


def _link(name: str, value: Any) -> Link:
    if isinstance(value, Linkable):
        try:
            return value.as_link()
        except ValueError as error:
            raise InvalidTask(str(error)) from None
    if isinstance(value, int):
        if isinstance(value, bool) or not 0 < value <= MAX_BIGINT:
            raise InvalidTask(f"{name} has {value!r}, which is not an id.")
        return Link(None, value)
    if isinstance(value, TaskResult):  # of our backend, whose ids look like that
        try:
            return Link(*parse_id(str(value.id)))
        except ValueError:
            raise InvalidTask(
                f"after has the result {value.id!r} of the backend {value.backend!r}, which is not one of "
                "django_pgqueue."
            ) from None
    hint, it = "", f"{value!r:.200}"
    if isinstance(value, str):
        hint = " Pass the Job or the TaskResult, or the id as an int."
    elif type(value).__name__ in ("BoundTask", "Task", "DjangoMadeTask"):
        it = "a call" if type(value).__name__ == "BoundTask" else f"the task {value.module_path}"
        hint = " A task has no end, but its job has: pass what enqueue() has returned, or use chain()."
    raise InvalidTask(f"after must be jobs, batches or their ids. It has {it}.{hint}")


#: The longest alias with which every id is shorter than 64 characters, which `django.tasks` promises.
LONGEST_ALIAS = 63 - len(f":{MAX_BIGINT}")


def public_id(job_id: int, alias: str | None) -> str:
    """Return a job's public id: ``"5"`` in the database ``default``, and ``"other:5"`` in another one.

    It contains the alias, not the backend, so that it means the same job whichever backend is asked.
    """
    return str(job_id) if alias in (None, DEFAULT_DB_ALIAS) else f"{alias}:{job_id}"


def parse_id(public: str) -> tuple[str, int]:
    """Return the alias and the number of an id. Raise ValueError."""
    alias, colon, number = public.rpartition(":")  # an alias may contain colons, a number cannot
    job_id = whole_number(number, 1)
    if job_id is None or (colon and not alias):
        raise ValueError(
            f"{public!r} is not the id of a job. An id looks like '5', or 'other:5' for another database."
        )
    return alias or DEFAULT_DB_ALIAS, job_id
