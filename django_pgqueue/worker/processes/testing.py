"""Set up Django's test environment in processes that a test starts: their tasks must not send real mail.

Test runners call ``setup_test_environment`` in their own process; other processes use the mail backend of the
settings. An environment variable passes this on, and is removed before a task could pass it on.
"""

from __future__ import annotations

import os
import sys

__all__ = ["enter_test_environment", "test_environment"]

_VARIABLE = "PGQUEUE_TEST_ENVIRONMENT"


def test_environment() -> dict[str, str]:
    """Return the variables that put a process that we start in the test environment, if we are in it."""
    utils = sys.modules.get("django.test.utils")  # if it is not imported, this is not a test
    is_set_up = hasattr(getattr(utils, "_TestState", None), "saved_data")
    return {_VARIABLE: "1"} if is_set_up else {}


def enter_test_environment() -> None:
    """Enter the test environment if the parent process is in it. Call this right after Django's setup."""
    if os.environ.pop(_VARIABLE, None):
        from django.test.utils import setup_test_environment

        setup_test_environment()
