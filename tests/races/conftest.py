"""The two sessions of a race."""

from __future__ import annotations

import pytest

from tests.support.sessions import Connect, Connection


@pytest.fixture
def one(connect: Connect) -> Connection:
    """Comes first. Its statements stay in a transaction until the test ends it."""
    return connect()


@pytest.fixture
def other(connect: Connect) -> Connection:
    """Comes second, and commits each statement."""
    return connect(autocommit=True)
