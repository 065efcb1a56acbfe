"""What the demonstration does at fixed times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from django_pgqueue.schedules.declare import _declared
from example_project.search.models import Document

pytestmark = pytest.mark.django_db


@pytest.fixture
def tasks() -> Iterator[ModuleType]:
    """The module, without its schedules, which would otherwise run in other tests of this process."""
    before = dict(_declared)
    from example_project.demo import tasks

    yield tasks
    _declared.clear()
    _declared.update(before)


def test_documents_are_counted_by_state(tasks: ModuleType) -> None:
    for number, state in enumerate(("indexed", "indexed", "failed")):
        Document.objects.create(path=f"/{number}", size=0, modified=0, state=state)
    assert tasks.count_documents.call() == {"waiting": 0, "indexed": 2, "failed": 1}


def test_documents_without_a_file_are_removed(tasks: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    for name in ("there", "gone"):
        Document.objects.create(path=str(tmp_path / name), size=0, modified=0)
    assert tasks.forget_missing_files.call() == 1
    assert Document.objects.get().name == "there"
    assert tasks.forget_missing_files.call() == 0
