"""What a table of statements is made of, and what checks an entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import ANY

import pytest
from django.db import connection as of_django

from django_pgqueue.maintenance.rounds import IN_USE_SQL
from tests.support.plans import MODES, counted
from tests.support.sessions import Connection

__all__ = ["MODES"]

#: The jobs of all shelves, with their indexes.
JOBS = "pgqueue_job"

#: Django sends values within a statement, so that there is no generic plan.
PINNED = MODES[:1]


@dataclass(frozen=True)
class Statement:
    """A statement, and how many rows and entries of indexes it may read."""

    name: str
    run: Callable[..., Any]  # is given the connection, and what `before` has returned
    #: By the beginnings of the names of relations: a limit, or at least and at most.
    most: Mapping[str | tuple[str, ...], int | tuple[int, int]] = field(default_factory=dict)
    returns: Any = field(default_factory=lambda: ANY)
    only: tuple[str, ...] = ()  # the beginnings of all names, unless it is empty
    before: Callable[[Connection], Any] | None = None  # is not counted
    modes: Sequence[str] = MODES
    on_django: bool = False  # runs on Django's own connection
    patched: Mapping[str, Any] = field(default_factory=dict)

    def check(self, one: Connection) -> None:
        """Run the statement, and roll back."""
        with rolled_back(connected() if self.on_django else one) as connection:
            given = () if self.before is None else (self.before(connection),)
            with counted(connection) as reads:
                returned = self.run(connection, *given)
            assert returned == self.returns
            for names, bound in self.most.items():
                least, most = bound if isinstance(bound, tuple) else (0, bound)
                number = reads.of(*(names if isinstance(names, tuple) else (names,)))
                assert least <= number <= most, (names, reads)
            assert all(name.startswith(self.only) for name in reads.by_relation) or not self.only, reads


#: A statement of Django.
Django = partial(Statement, modes=PINNED, on_django=True)


@dataclass(frozen=True)
class Room:
    """Rows that are made once, and the statements that are run beside them."""

    name: str
    make: Callable[[Connection], None]
    statements: Sequence[Statement]
    vacuum: str = ""  # the tables from which dead rows of other statements are removed before each one
    tables: str = "pgqueue_job"  # are emptied at the end

    def cases(self) -> Iterator[Any]:
        """Return the parameters of the test for each statement."""
        for statement in self.statements:
            for mode in statement.modes:
                yield pytest.param(self, statement, mode, id=f"{self.name}: {statement.name} [{mode}]")


def connected() -> Connection:
    """Return Django's own connection."""
    of_django.ensure_connection()
    raw: Connection = of_django.connection
    return raw


@contextmanager
def rolled_back(connection: Connection) -> Iterator[Connection]:
    connection.execute("BEGIN")
    try:
        yield connection
    finally:
        connection.execute("ROLLBACK")


def count_depth(connection: Connection) -> Any:
    """Count the depth of this minute, so that the next round does not."""
    return connection.execute("SELECT _pgqueue_count_depth()").fetchone()


def what_is_in_use(connection: Connection, _: Any) -> Any:
    """Ask what maintenance is needed."""
    return connection.execute(IN_USE_SQL).fetchone()
