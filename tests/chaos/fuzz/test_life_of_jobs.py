"""Random calls of everything that moves jobs, against a model. ``dev.py chaos --fuzz`` is the long form."""

from __future__ import annotations

import pytest

from tests.support.sessions import Connect

from .machine import live

LIVES, CALLS = 50, 20
"""So many lives of a few jobs, of so many calls. Each guard that was removed was found within them."""


@pytest.mark.timeout(1200)  # a life that fails is shrunk
@pytest.mark.django_db(transaction=True)
def test_jobs_live_as_the_model_says(connect: Connect) -> None:
    live(connect(autocommit=True, options="-c statement_timeout=20s"), lives=LIVES, calls=CALLS)
