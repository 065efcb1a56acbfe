"""The functions of the schema with any parameters: each gives a clear error, or does no harm to other jobs.

The functions are found by introspection, so a new one is called by itself. The calls are rolled back. The
other jobs wait, run and are over. A call may name them if it names their leases too, which it cannot know.
"""

from __future__ import annotations

import pytest

from tests.support.sessions import Connect

from .calls import Calls

INTERNAL, PUBLIC = 2, 15
"""Calls of each function."""


@pytest.mark.django_db(transaction=True)
def test_each_answer_is_a_clear_error_or_harmless(connect: Connect) -> None:
    calls = Calls(connect(autocommit=True, options="-c statement_timeout=5s"))
    assert len(calls.functions) > 100
    problems = calls.make(seed=None, internal=INTERNAL, public=PUBLIC)
    assert not problems, "\n".join(problems)
