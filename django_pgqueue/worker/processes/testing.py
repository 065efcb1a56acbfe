"""Django's test environment, for the processes that a test starts: their tasks must not send real mail.

Test runners call ``setup_test_environment`` in their process; another one has the settings' mail backend.
It travels as a variable of the environment, which is taken away before any task can hand it on.
"""

from __future__ import annotations

import os
import sys

__all__ = ["enter_test_environment", "test_environment"]

_VARIABLE = "PGQUEUE_TEST_ENVIRONMENT"


def test_environment() -> dict[str, str]:
    """What a process that starts from here needs in its environment to be in the test environment as well."""
    utils = sys.modules.get("django.test.utils")  # not imported: no test
    is_set_up = hasattr(getattr(utils, "_TestState", None), "saved_data")
    return {_VARIABLE: "1"} if is_set_up else {}


def enter_test_environment() -> None:
    """In a process that has just set up Django: as the process that started it."""
    if os.environ.pop(_VARIABLE, None):
        from django.test.utils import setup_test_environment

        setup_test_environment()
