"""The shards: databases that share the jobs of a project (``SHARDS``), and the row by which each has a name.

    its row       holds the name of the shard, so that the id ``s1:5`` means the same job everywhere
    is draining   nothing is spread to it any more, but its workers go on

Which shard a key belongs to follows from the names of the shards alone (rendezvous hashing), so all processes
agree without asking, and a shard that is added or drained moves only the keys that it gets or had.
Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM ToN 6(1), 1998.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from time import monotonic
from typing import Any, Literal, NamedTuple

from django.db import connections

from .. import conf
from ..compat import InvalidTask
from ..postgres import fetch_rows
from ..postgres.ask import ask_all
from .keys import key_text, key_value
from .routing import default_backend

State = Literal["active", "draining", "unreachable"]

SEEN_FOR = 10.0
"""How many seconds a process relies on what it has read of a shard."""
UNREACHABLE_FOR = 60.0
"""The same if it did not answer: to ask may take two seconds, in which a call waits."""
MOST = 512
"""How many shards there may be."""
_READ = "SELECT name, number, is_draining FROM _pgqueue_shard()"
_seen: dict[str, tuple[float, State]] = {}


class Shard(NamedTuple):
    """The row of a database."""

    name: str
    number: int
    is_draining: bool


def read_shard(alias: str) -> Shard | None:
    """Read the row of a database; None: it has no name. Raise Django's ``Error`` if that is not possible."""
    rows = fetch_rows(alias, _READ)
    return Shard(*rows[0]) if rows else None


def shard_for(key: str) -> str:
    """Return the shard that a key belongs to: ``task.using(database=shard_for("customer-5"))``.

    It is an alias of SHARDS; without SHARDS, that of the default backend. No key belongs to a shard that is
    being drained.

    Raise ``InvalidTask`` if all shards are being drained.
    """
    return max(_spread_over(), key=lambda alias: _weight(alias, key))


def forget() -> None:
    """Read all states again, for a process that has changed them."""
    _seen.clear()


def _states() -> dict[str, State]:
    """Return the states of the shards, as this process has last read them. They are asked side by side and
    for a short time: one that hangs must not keep a call from another one.
    """
    shards, now = conf.current().shards, monotonic()
    known = {alias: _seen[alias] for alias in shards if alias in _seen and now < _seen[alias][0]}
    if new := [alias for alias in shards if alias not in known]:
        answers = ask_all(new, read_shard)
        read_at = monotonic()
        for alias in new:
            shard = answers.given.get(alias)
            state: State = "draining" if shard is not None and shard.is_draining else "active"
            known[alias] = (read_at + SEEN_FOR, state)
            if alias in answers.failed:
                known[alias] = (read_at + UNREACHABLE_FOR, "unreachable")
        _seen.update(known)
    return {alias: state for alias, (_until, state) in known.items()}


def _spread_over() -> list[str]:
    shards = conf.current().shards
    if not shards:
        return [default_backend().home()]
    if aliases := [alias for alias, state in _states().items() if state != "draining"]:
        return aliases
    raise InvalidTask(
        f"All shards ({', '.join(shards)}) are being drained, so no job can be spread over them. "
        "Run: python manage.py pgqueue shard activate ALIAS"
    )


def _weight(alias: str, key: str) -> bytes:
    return blake2b(f"{alias}\0{key}".encode(), digest_size=8).digest()


def placed(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the task with the database of a call, if it is spread over the shards and names none itself.

    Raise ``InvalidTask`` in a transaction on another database: a job that is spread cannot be part of it.
    """
    named = task.database if task.relay is None else task.relay
    if task.spread is None or named is not None or not conf.current().shards:
        return task
    if task.links is not None:
        raise InvalidTask(
            f"{task.module_path} is spread over the shards, but what it waits for, and its batch, are on one "
            "of them. Name that one: .using(database=...)."
        )
    alias = shard_of_call(task, args, kwargs)
    if elsewhere := [each for each in _open_transactions() if task.spread is True or each != alias]:
        raise InvalidTask(
            f"{task.module_path} is spread over the shards, and this call goes to {alias!r}, but a "
            f"transaction is open on {elsewhere[0]!r}, and the job would not be part of it. Enqueue it after "
            f"the commit (transaction.on_commit), or let a job hand it over: .using(relay={alias!r})."
        )
    return task.with_values({"database": alias})


def shard_of_call(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the shard of a call that is spread: at random, one that could be reached when last read, or by
    its key. Raise ``InvalidKey`` if that cannot be computed.
    """
    if task.spread is True:
        states, aliases = _states(), _spread_over()
        return random.choice([alias for alias in aliases if states.get(alias) == "active"] or aliases)
    value = key_value(task, "key of spread", task.spread, args, kwargs)
    return shard_for(key_text(task, "key of spread", value))


def _open_transactions() -> list[str]:
    """Return the aliases on which this thread has a transaction that is not the one of a test case."""
    return [
        each.alias for each in connections.all(initialized_only=True)
        if not all(getattr(block, "_from_testcase", False) for block in each.atomic_blocks)
        or (each.connection is not None and not each.autocommit and not each.in_atomic_block)
    ]  # fmt: skip
