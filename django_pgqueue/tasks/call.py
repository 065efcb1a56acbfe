"""Check the calls that are to be enqueued, and turn each into what the statements take.

What all calls of a task with the same options have in common is checked once (``call_options``), and what
differs from call to call each time (``prepare``).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

from .. import conf
from ..compat import InvalidTask, is_task
from ..conf import before_enqueue
from ..encoding import check_size, encode_arguments, encode_metadata
from ..exceptions import JobExists, PgQueueError, WrongBackend
from ..postgres.aliases import same_database, write_alias
from .keys import group_key, limit_key, searched_places
from .links import Link, Links
from .paths import HAND_OVER
from .payload import key_arguments, payload_of_call
from .routing import is_ours
from .shards import placed
from .signatures import check_call
from .task import BoundTask, Policy, Task, adopt, find_task
from .unique import EnqueueOutcome, unique_key, unique_options

#: The exceptions that the checks of a call raise, besides TypeError and ValueError.
_CHECKED = (PgQueueError, InvalidTask, ImproperlyConfigured)
#: The tasks whose options ``enqueue_many`` remembers; a hook may make another one for each call.
_MOST_CHECKED = 1_000


class CallOptions(NamedTuple):
    """What all calls of a task with the same options have in common."""

    task: Task[..., Any]
    alias: str
    task_path: str
    metadata: str  # JSON
    policy: Policy
    row: tuple[Any, ...]  # what `Call.row` has after the arguments
    links: dict[str, Any] | None = None
    """`after`, `if_failed` and `batch`, as the SQL functions take them; None: nothing of it."""
    search: dict[str, int | None] | None = None
    """The indexed arguments and their places; None: there are none."""
    keeper: Any = None
    """What takes the calls of a backend for tests, instead of the statements that write them."""
    relay: CallOptions | None = None
    """The options of the job that hands such a call over to ``alias``; None: it is written there."""


class Call(NamedTuple):
    """One checked call. The arguments are JSON."""

    options: CallOptions
    args: str
    kwargs: str
    unique_key: str | None = None
    limit_key: str | None = None
    group_key: str | None = None
    context: str | None = None  # JSON
    tenant: str | None = None
    payload: Any = None  # the new row of a task whose calls are rows

    @property
    def needs_transaction(self) -> bool:
        """Whether its statement is not all: its payload is written, too, or its outcome may raise."""
        unique = self.options.task.unique
        return self.payload is not None or (unique is not None and unique.on_conflict == "raise")

    def row(self) -> tuple[Any, ...]:
        """Return the arguments of the SQL functions that every call has, in their order."""
        return (self.options.task_path, self.args, self.kwargs, *self.options.row)

    def more(
        self, *, in_shared_batch: bool = False, with_tenant: bool = True, with_context: bool = False
    ) -> str | None:
        """Return what only some jobs have, as JSON: the ``options`` of the SQL functions. None: nothing.

        Of many calls, the context is the same and sent only once. ``in_shared_batch``: the batch, too. The
        tenant may be a parameter of its own, which takes less time.
        """
        unique, links = self.options.task.unique, self.options.links
        more: dict[str, Any] = {} if links is None else dict(links)
        if in_shared_batch:
            more.pop("batch", None)
        if self.limit_key is not None:
            more["limit_key"] = self.limit_key
        if self.group_key is not None:
            more["group_key"] = self.group_key
        if self.tenant is not None and with_tenant:
            more["tenant"] = self.tenant
        if self.options.search is not None:
            more["search"] = self.options.search
        if unique is not None:
            more |= {"unique_key": self.unique_key, **unique_options(unique)}
        text = json.dumps(more) if more else None
        if not with_context or self.context is None:
            return text
        return f'{{"context":{self.context}' + ("}" if text is None else f",{text[1:]}")

    def check_outcome(self, outcome: EnqueueOutcome | None, job_id: int, where: str = "") -> None:
        """Raise ``JobExists`` if the call wants that for its outcome. `where`: the start of the message."""
        unique = self.options.task.unique
        if outcome == "existing" and unique is not None and unique.on_conflict == "raise":
            raise JobExists(
                f"{where}Job {job_id} has the unique key {self.unique_key!r} of this call of "
                f"{self.options.task_path}.",
                job_id,
            )


def as_ours(task: Any) -> Task[..., Any]:
    """Return the task that a caller passed as one of ours. Raise ``TypeError`` if it is not a task."""
    if not is_task(task):
        hint = " Decorate the function with django_pgqueue.task." if callable(task) else ""
        if isinstance(task, str):
            hint = " Import the task, and pass it instead of its path."
        raise TypeError(f"enqueue() takes a task, not {task!r}.{hint}")
    return adopt(task)


def call_options(task: Task[..., Any]) -> CallOptions:
    """Check a task with its options, and fill in the defaults from the settings."""
    backend = task.get_backend()
    if not is_ours(backend):
        raise WrongBackend(
            f"{task.module_path} uses the backend {task.backend!r} ({type(backend).__name__}), which is not "
            "one of django_pgqueue. Call the task's own .enqueue(), or select another backend."
        )
    backend.validate_task(task)
    alias = task.relay or task.database or backend.home()
    if task.relay is not None:
        _check_relay(task, task.relay)
    if task.atomic:
        check_atomic(task, alias)
    keeper = backend.keeper
    metadata = encode_metadata(task.metadata)
    what, hint = f"metadata of {task.module_path} takes", "Store the data and pass its key."
    check_size(len(metadata.encode()), conf.current().max_json_bytes, what, hint)
    policy = task.policy()
    return CallOptions(
        task=task,
        alias=alias,
        task_path=task.module_path,
        metadata=metadata,
        policy=policy,
        row=(
            metadata, task.queue_name, task.priority,
            None if task.run_after is None else task.run_after.isoformat(),
            None if task.run_after_delta is None else task.run_after_delta.total_seconds(),
            policy.expires_after, policy.max_attempts, policy.timeout, policy.on_lost,
        ),
        links=None if task.links is None else link_options(task.links, alias, keeper),
        search=searched_places(task),
        keeper=keeper,
        relay=None if task.relay is None or keeper is not None else _relay_options(task, backend.home()),
    )  # fmt: skip


def prepare(
    options: CallOptions,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    context: str | None = None,
    tenant: str | None = None,
) -> Call:
    """Check a call of a task whose options have been checked. `context`: what travels with it, as JSON.
    `tenant`: that of the caller.
    """
    task, payload, arguments = options.task, None, ("[]", "{}")
    check_call(task, args, kwargs)
    if task.payload is None:
        arguments = encode_arguments(args, kwargs, conf.current().max_json_bytes)
    else:
        payload = payload_of_call(task, options.alias, args, kwargs)
    unique = None if task.unique is None else unique_key(task, args, kwargs)
    if payload is not None:
        args, kwargs = (), key_arguments(task, payload)
    limit, group = limit_key(task, args, kwargs), group_key(task, args, kwargs)
    call = Call(options, *arguments, unique, limit, group, context, task.tenant or tenant, payload)
    return call if options.relay is None else _relayed(call, options.relay)


def several(calls: Any, function: str) -> Iterator[BoundTask]:
    """Yield the calls given to `function`. Raise ``TypeError`` for one call; at its turn, for a non-call."""
    if isinstance(calls, BoundTask):
        raise TypeError(
            f"{function}() takes several calls. Put the call into a list, or write enqueue(call)."
        )
    if is_task(calls) or not isinstance(calls, Iterable):
        raise TypeError(f"{function}() takes a list of calls such as task.bind(1), not {calls!r:.200}.")

    def checked(call: Any) -> BoundTask:
        if not isinstance(call, BoundTask):
            raise TypeError(f"{function}() takes calls such as task.bind(1), not {call!r:.200}.")
        return call

    return map(checked, calls)


def prepare_all(calls: Iterable[BoundTask], context: str | None, tenant: str | None) -> Iterator[Call]:
    """Check the calls one by one and yield them. A task is immutable, so each is checked only once."""
    options_of: dict[int, tuple[Any, CallOptions]] = {}
    first: CallOptions | None = None
    place = 0
    try:
        for call in several(calls, "enqueue_many"):  # a generator may raise here, if its next .bind() fails
            call = after_hooks(call)
            if getattr(call.task, "spread", None) is not None:
                call = _on_one_shard(call, first)
            known = options_of.get(id(call.task))
            if known is None:
                if len(options_of) >= _MOST_CHECKED:
                    options_of.clear()
                # The task is stored with its options, so that no other object can get the same id().
                known = options_of[id(call.task)] = (call.task, call_options(as_ours(call.task)))
            options = known[1]
            written = options.relay or options
            first = first or written
            if written.alias != first.alias:
                raise ValueError(
                    f"The database is {written.alias!r}, but the items before use {first.alias!r}. "
                    "Call enqueue_many() once for each database."
                )
            yield prepare(options, call.args, call.kwargs, context, tenant)
            place += 1
    except Exception as error:
        error.add_note(f"in item {place} of enqueue_many()")
        # Any other exception comes from the caller's generator, and its arguments may be more than a message.
        checked = type(error) in (TypeError, ValueError) or isinstance(error, _CHECKED)
        if checked and error.args == (str(error),):
            error.args = (f"item {place}: {error}",)
        raise


def _on_one_shard(call: BoundTask, first: CallOptions | None) -> BoundTask:
    """Return a call that is spread with its database. At random, all calls of a statement go to the same."""
    task = call.task
    if first is not None and task.spread is True and task.database is None and task.relay is None:
        task = task.with_values({"database": first.alias})
    return BoundTask(placed(task, call.args, call.kwargs), call.args, call.kwargs)


#: The calls that a hook enqueues pass the hooks, too. More than so many inside each other never end.
_DEEPEST = 10
_DEPTH: ContextVar[int] = ContextVar("django_pgqueue.hooks.depth", default=0)


def after_hooks(call: BoundTask) -> BoundTask:
    """Return what the hooks make of a call. An exception of a hook refuses it."""
    hooks = before_enqueue()
    if not hooks:
        return call
    depth = _DEPTH.get()
    if depth >= _DEEPEST:
        raise RuntimeError(
            f"BEFORE_ENQUEUE: a hook enqueues {call.task.module_path}, and that call passes the hooks, which "
            "enqueue again, without end. Let the hook return at once for the tasks that it enqueues."
        )
    call = BoundTask(as_ours(call.task), call.args, call.kwargs)
    token = _DEPTH.set(depth + 1)
    try:
        for hook in hooks:
            answer = hook.call(call)
            if answer is None:
                continue
            if not isinstance(answer, BoundTask):
                raise TypeError(
                    f"BEFORE_ENQUEUE: {hook.path} has returned {answer!r:.100}, not a call. Return "
                    "call.using(...) or task.bind(...), or None to leave the call as it is."
                )
            if call.task.links is not None and answer.task.links is None:
                raise ValueError(
                    f"BEFORE_ENQUEUE: {hook.path} has returned a call without the batch and the after of "
                    f"{call.task.module_path}. Make it with call.using(...), which keeps them."
                )
            call = answer
    finally:
        _DEPTH.reset(token)
    return call


def link_options(links: Links, alias: str, keeper: Any) -> dict[str, Any] | None:
    """Return the ``options`` for the links of a call that goes to the database ``alias``. Only that knows
    whether the jobs and batches exist. Raise InvalidTask if one is elsewhere; in memory there is one place.
    """
    if keeper is None or not keeper.in_memory:
        for link in links.after:
            _check_place(f"after has the job or batch {link.id}", link, alias)
        if links.batch is not None:
            _check_place(f"The batch {links.batch.id} is", links.batch, alias)
    options: dict[str, Any] = {}
    if links.after:
        options["after"] = [link.id for link in links.after]
        options["if_failed"] = links.if_failed
    if links.batch is not None:
        options["batch"] = links.batch.id
    return options or None


def _check_place(what: str, link: Link, alias: str) -> None:
    if not link.is_row:
        raise InvalidTask(
            f"{what} in memory: dummy_jobs() or DummyBackend has kept it there. It will never finish."
        )
    if link.alias is None or same_database(link.alias, alias):
        return
    # The router may name another alias for the row, which only a query can show.
    found = link.alias if link.row is None else write_alias(link.row)
    if not same_database(found, alias):
        raise InvalidTask(
            f"{what} in the database {found!r}, but this call goes to {alias!r}. They must be in the "
            f"same one. Enqueue with .using(database={found!r}), or let one job enqueue the other."
        )


def check_atomic(task: Task[..., Any], alias: str) -> None:
    """Raise ``InvalidTask`` if the job of an atomic task would be in a different database than its work.

    The body and the finish of the job are one transaction, so the effect happens exactly once: but only of
    what the body writes in the database of its job. Its decorator names it, or it is ``default`` or any
    shard: the job is enqueued where its rows are.
    """
    declared = find_task(task.module_path).database
    works_on = declared or DEFAULT_DB_ALIAS
    if alias != works_on and not {alias, declared or alias} <= {*conf.current().shards}:
        raise InvalidTask(
            f"{task.module_path} is atomic and works on the database {works_on!r}, but its job would be in "
            f"{alias!r}, and one transaction cannot span both. Enqueue it on {works_on!r}, declare it "
            f"with @task(atomic=True, database={alias!r}), or name it in PGQUEUE['SHARDS'] if the task uses "
            "the database of its job."
        )


# The relay: a call that goes to another database is held by a job in that of the caller (``jobs.relay``).

#: What ``Call.row`` has, by the names that _pgqueue_receive knows.
_SENT = (
    "task_path", "args", "kwargs", "metadata", "queue_name", "priority", "run_after", "delay",
    "expires_after", "max_attempts", "timeout", "on_lost",
)  # fmt: skip


def _relay_options(task: Task[..., Any], home: str) -> CallOptions:
    """Return the options of the jobs that hand over the calls of a task. They are in the database that
    ``using(database=)`` names. That of the decorator is where the task belongs, and not where the caller is.

    A call that starts at a fixed time waits for its database however long that takes, and has expired there.
    """
    home = task.database if task.database not in (None, find_task(task.module_path).database) else home
    changes = {"backend": task.backend, "database": home, "priority": task.priority}
    changes["expires_after"] = None if task.run_after else task.expires_after
    return call_options(find_task(HAND_OVER).with_values(changes))


def _check_relay(task: Task[..., Any], alias: str) -> None:
    """Raise ``InvalidTask`` for a call that cannot be handed over to the database with this alias."""
    what = f"A call of {task.module_path} cannot be handed over to {alias!r}: "
    if alias not in connections.settings:
        raise InvalidTask(f"{what}DATABASES has no such alias, only {', '.join(connections.settings)}.")
    if (vendor := connections[alias].vendor) != "postgresql":
        raise InvalidTask(f"{what}it is a database of {vendor}, and jobs are stored in PostgreSQL.")
    if task.payload is not None:
        raise InvalidTask(f"{what}its payload is a row here. Pass what the task needs as arguments.")
    if task.unique is not None and task.unique.on_conflict == "raise":
        raise InvalidTask(
            f"{what}Unique(on_conflict='raise') raises where the call is made, but the key is looked up "
            "there, later. Use on_conflict='existing'."
        )


def _relayed(call: Call, relay: CallOptions) -> Call:
    """Return the call that hands over a call. It holds what is written there, so the workers that hand it
    over need not know its task.

    The token distinguishes it from every other one, also from that of a job with the same id, which comes
    again if the database is restored from a backup.
    """
    texts = dict(zip(_SENT, map(json.dumps, call.row()), strict=True))
    texts |= {"args": call.args, "kwargs": call.kwargs, "metadata": call.options.metadata}
    texts["options"] = call.more(with_context=True) or "null"
    sent = ", ".join(f'"{name}": {text}' for name, text in texts.items() if text != "null")
    args = f'[{json.dumps(call.options.alias)}, {{{sent}}}, "{uuid.uuid4()}"]'
    return Call(relay, args, "{}", context=call.context, tenant=call.tenant)
