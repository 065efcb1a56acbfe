"""Random calls of all functions, and of all that moves jobs. ``dev.py chaos --fuzz`` is the long form."""

from __future__ import annotations

import pytest

from tests.support.sessions import Connect

from .functions import Calls
from .machine import live

pytestmark = pytest.mark.django_db(transaction=True)

INTERNAL, PUBLIC = 2, 15
"""Calls of each function."""
LIVES, CALLS = 50, 20
"""So many lives of a few jobs, of so many calls. Each guard that was removed was found within them."""


def test_each_answer_is_a_clear_error_or_harmless(connect: Connect) -> None:
    """The other jobs wait, run and are over. A call cannot know their leases. All calls are rolled back."""
    calls = Calls(connect(autocommit=True, options="-c statement_timeout=5s"))
    assert len(calls.functions) > 100
    problems = calls.make(seed=None, internal=INTERNAL, public=PUBLIC)
    assert not problems, "\n".join(problems)


@pytest.mark.timeout(1200)  # a life that fails is shrunk
def test_jobs_live_as_the_model_says(connect: Connect) -> None:
    live(connect(autocommit=True, options="-c statement_timeout=20s"), lives=LIVES, calls=CALLS)
