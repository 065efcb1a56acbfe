"""The two sessions of a race."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.sessions import Connection, Sessions


@pytest.fixture
def one(transactional_db: None, sessions: Sessions) -> Iterator[Connection]:
    """Comes first. Its statements stay in a transaction until the test ends it."""
    with sessions.lend(autocommit=False) as session:
        yield session


@pytest.fixture
def other(transactional_db: None, sessions: Sessions) -> Iterator[Connection]:
    """Comes second, and commits each statement."""
    with sessions.lend(autocommit=True) as session:
        yield session
