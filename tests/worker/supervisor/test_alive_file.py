"""The file whose age tells whether a supervisor lives."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from django_pgqueue.worker.supervisor.supervisor import WRITE_EVERY, Service


def test_it_is_written_at_its_interval_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "alive"
    file = Service(str(path))
    file.sign(100.0, "1 of 1 process at work")
    assert path.read_text() == "1 of 1 process at work\n"
    assert file.next_sign == 100.0 + WRITE_EVERY
    file.sign(101.0, "too early")
    assert path.read_text() == "1 of 1 process at work\n"
    file.sign(100.0 + WRITE_EVERY, "stopping")
    assert path.read_text() == "stopping\n"
    assert list(tmp_path.iterdir()) == [path]
    file.end()
    file.end()
    assert list(tmp_path.iterdir()) == []


def test_without_a_path_nothing_happens() -> None:
    file = Service("")
    file.sign(1.0, "fine")
    file.end()
    assert file.next_sign == float("inf")


def test_a_file_that_cannot_be_written_is_complained_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = Service(str(tmp_path / "gone" / "alive"))
    for now in (0.0, WRITE_EVERY, 2 * WRITE_EVERY):
        file.sign(now, "fine")
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize("path", ["/nowhere/alive", "/"])
def test_the_command_refuses_a_path_at_its_start(path: str) -> None:
    with pytest.raises(CommandError, match="cannot be written"):
        call_command("runqueueworker", "--alive-file", path)
