"""``--reload``: which files count, when they have changed, and what the reloader does about it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from time import time
from types import SimpleNamespace

import pytest
from django.apps import apps

from django_pgqueue.management import _reload
from django_pgqueue.management._parser import USAGE
from django_pgqueue.management._reload import RELOAD, SourceFiles, parent_since, run_reloader, watch

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def save(path: Path, seconds: float) -> None:
    """Save a file; ``seconds`` from now, by its time."""
    path.touch()
    moment = time() + seconds
    os.utime(path, (moment, moment))


@pytest.fixture
def files(tmp_path: Path) -> SourceFiles:
    """Watched since a minute ago: an old file, and whatever else comes into its folder."""
    save(tmp_path / "old.py", -3600)
    files = SourceFiles(since=time() - 60)
    files.watched_files = lambda include_globs=True: tmp_path.glob("*.py")  # type: ignore[method-assign]
    return files


def test_a_file_that_is_saved_again_has_changed(files: SourceFiles, tmp_path: Path) -> None:
    assert files.changed() is None
    save(tmp_path / "old.py", -1800)  # restored from somewhere, with its time
    assert files.changed() == tmp_path / "old.py"
    assert files.changed() is None


def test_a_new_file_has_changed(files: SourceFiles, tmp_path: Path) -> None:
    assert files.changed() is None
    save(tmp_path / "new.py", 0)
    assert files.changed() == tmp_path / "new.py"


def test_a_file_saved_between_its_import_and_the_first_look_has_changed(
    files: SourceFiles, tmp_path: Path
) -> None:
    save(tmp_path / "old.py", -30)
    assert files.changed() == tmp_path / "old.py"


def test_a_file_from_the_future_does_not_restart_it_for_ever(files: SourceFiles, tmp_path: Path) -> None:
    save(tmp_path / "old.py", 3600)
    assert files.changed() is None
    save(tmp_path / "old.py", 7200)
    assert files.changed() == tmp_path / "old.py"


def test_the_files_of_the_apps_count_also_where_nothing_has_imported_them() -> None:
    found = set(SourceFiles(time()).watched_files())
    tests = Path(__file__).resolve().parents[1]
    assert tests / "app" / "management" / "commands" / "flush.py" in found
    assert Path(_reload.__file__) in found, "it is imported"
    assert not any("node_modules" in path.parts for path in found)


def test_packages_are_walked_and_other_folders_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.py", "inner/__init__.py", "inner/b.py", "node_modules/c.py", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    files = SourceFiles(0)
    folders = [SimpleNamespace(path=str(folder)) for folder in (tmp_path, tmp_path / "removed")]
    monkeypatch.setattr(apps, "get_app_configs", lambda: folders)
    watched = [path for path in files.watched_files() if path.is_relative_to(tmp_path)]
    found = {str(path.relative_to(tmp_path)) for path in watched}
    assert found == {"a.py", "inner/__init__.py", "inner/b.py"}


def test_a_child_knows_its_reloader_and_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    deaths: list[int] = []
    monkeypatch.setattr(_reload, "die_with", deaths.append)
    monkeypatch.delenv("PGQUEUE_RELOADER", raising=False)
    assert parent_since() is None
    monkeypatch.setenv("PGQUEUE_RELOADER", f"{os.getppid()} 12.5")
    assert parent_since() == 12.5
    assert deaths == [os.getppid()]
    # What a task starts inherits the variable, from another parent.
    monkeypatch.setenv("PGQUEUE_RELOADER", f"{os.getpid()} 12.5")
    assert parent_since() is None


def test_a_change_is_told_from_another_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changes = iter([None, tmp_path])
    monkeypatch.setattr(SourceFiles, "changed", lambda self: next(changes))
    monkeypatch.setattr(_reload, "LOOK_EVERY", 0.0)
    told: Queue[Path] = Queue()
    watch(time(), told.put)
    assert told.get(timeout=10) == tmp_path


@pytest.fixture
def _handlers() -> Iterator[None]:
    before = [signal.getsignal(number) for number in HANDLED]
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup, where it stays ignored
    yield
    for number, handler in zip(HANDLED, before, strict=True):
        signal.signal(number, handler)


class Children:
    """Programs that the reloader starts one after another, in the place of the command."""

    def __init__(self, *programs: str) -> None:
        self._programs = list(programs)
        self.said: list[str] = []
        self.looks = 0

    def next(self) -> list[str]:
        """The command line of the next one."""
        return [sys.executable, "-I", "-S", "-c", self._programs.pop(0)]

    def changed(self) -> Path | None:
        """At the third look something has changed."""
        self.looks += 1
        return Path("saved.py") if self.looks == 3 else None

    def run(self, monkeypatch: pytest.MonkeyPatch) -> int:
        """Run the reloader on them; its exit code."""
        monkeypatch.setattr(_reload, "get_child_arguments", self.next)
        monkeypatch.setattr(SourceFiles, "changed", self.changed)
        monkeypatch.setattr(_reload, "LOOK_EVERY", 0.01)
        code = run_reloader(self.said.append)
        assert self._programs == [], "some were not started"
        return code


# Each gets its signal only once it can handle it: it makes the reloader hear of it itself.
HEARS = """
import os, signal, sys, time
signal.signal(signal.{0}, lambda *_: sys.exit({1}))
os.kill(os.getppid(), signal.{0})
while True:  # a signal that comes just before signal.pause() would not end it
    time.sleep(0.01)
"""


@pytest.mark.usefixtures("_handlers")
@pytest.mark.parametrize("code", [0, USAGE])
def test_another_child_follows_until_one_has_ended_for_good(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    children = Children(
        f"raise SystemExit({RELOAD})", f"raise SystemExit({RELOAD})", f"raise SystemExit({code})"
    )
    assert children.run(monkeypatch) == code
    assert children.said == []
    assert children.looks == 0


@pytest.mark.usefixtures("_handlers")
@pytest.mark.parametrize(
    ("program", "code"), [("a syntax error", 1), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_after_an_error_it_waits_for_a_change(
    monkeypatch: pytest.MonkeyPatch, program: str, code: int
) -> None:
    children = Children(program, "raise SystemExit(0)")
    assert children.run(monkeypatch) == 0
    assert children.said == [f"The command ended with exit code {code}. It starts again when a file changes."]
    assert children.looks == 3


@pytest.mark.usefixtures("_handlers")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP"])
def test_a_signal_is_handed_on_and_the_exit_code_comes_back(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert Children(HEARS.format(name, 7)).run(monkeypatch) == 7


@pytest.mark.usefixtures("_handlers")
def test_a_stop_while_it_reloads_is_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Race: the child ends because of a change, and the user has pressed Ctrl-C meanwhile."""
    assert Children(HEARS.format("SIGINT", RELOAD)).run(monkeypatch) == 0


@pytest.mark.usefixtures("_handlers")
def test_a_stop_while_it_waits_for_a_change_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    children = Children("raise SystemExit(1)")

    def stop_instead(files: SourceFiles) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Children, "changed", stop_instead)
    assert children.run(monkeypatch) == 0
