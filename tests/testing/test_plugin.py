"""The pytest plugin in projects of its own: beside pytest-django, without it, and with warnings as errors."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from django_pgqueue.testing import pytest_plugin

BARE = """
import sys
import pytest

def test_nothing_of_django_is_imported():
    assert "django_pgqueue.testing.pytest_plugin" in sys.modules
    assert "django" not in sys.modules

@pytest.mark.skip
def test_fixtures_are_not_used(run_jobs, immediate_jobs, dummy_jobs): ...
"""


def test_pytest_finds_it() -> None:
    (found,) = [each for each in entry_points(group="pytest11") if each.name == "django_pgqueue"]
    assert found.load() is pytest_plugin


def test_it_disturbs_no_project_without_django(tmp_path: Path) -> None:
    (tmp_path / "test_bare.py").write_text(BARE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-c", "/dev/null", "--rootdir", ".",
         "-p", "no:cacheprovider", "-p", "no:django", "-p", "no:xdist", "test_bare.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr


EARLY = """
from django.conf import settings
settings.configure(TASKS={"default": {"BACKEND": "django_pgqueue.testing.ImmediateBackend"}})
from django_pgqueue import task
@task
def early() -> None: ...
assert type(early.get_backend()).__name__ == "ImmediateBackend"
import sys
assert "django_pgqueue.models" not in sys.modules
"""


def test_tasks_may_be_declared_while_apps_load() -> None:
    done = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_fixtures_are_described() -> None:
    for name in ("run_jobs", "immediate_jobs", "dummy_jobs", "pgqueue_worker"):
        assert getattr(pytest_plugin, name).__doc__


@pytest.mark.django_db
def test_a_failed_assertion_hides_the_frames_of_the_kit() -> None:
    from django_pgqueue.testing import assert_enqueued

    with pytest.raises(AssertionError) as caught:
        assert_enqueued("shop.tasks.report")
    shown = [Path(entry.path).name for entry in caught.traceback if not entry.ishidden(caught)]
    assert shown == [Path(__file__).name]
