"""What the previous release has installed does not change: new versions are new files and new migrations."""

from __future__ import annotations

import os

import pytest

from .harness.previous import NAME, NO_HISTORY, changed_since, lacks_history


@pytest.mark.promise("old-and-new")
def test_released_files_have_not_changed() -> None:
    if lacks := lacks_history():
        fails = os.environ.get("CI") == "true" and lacks != NO_HISTORY
        (pytest.fail if fails else pytest.skip)(f"this test needs {lacks}")
    changed = changed_since("django_pgqueue/migrations", "django_pgqueue/sql")
    assert not changed, (
        f"The previous release ({NAME}) has installed these files, which do not change in its databases:"
        f" {', '.join(changed)}. Write a new version into a new file, with a new migration."
    )
