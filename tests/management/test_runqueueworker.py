"""``manage.py runqueueworker``: its banner, and ``--reload``."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.urls import get_script_prefix, set_script_prefix

from django_pgqueue import task
from django_pgqueue.management import _reload
from django_pgqueue.management._parser import USAGE
from django_pgqueue.management._reload import RELOAD, SourceFiles, parent_since, run_reloader
from django_pgqueue.management.commands import runqueueworker
from django_pgqueue.management.commands.runqueueworker import Server, admin_urls, banner
from django_pgqueue.models import Job
from django_pgqueue.worker.options import WorkerOptions
from tests.admin import sites

# --- The banner


@task
def here() -> None:
    """One that is found."""


SERVER = Server("shop", "db.example.com", 5433, 170_002)


def shown(*, checked: bool = True, list_tasks: bool = False, **options: Any) -> str:
    worker = WorkerOptions(**options)
    return banner_of([worker], {worker.alias: SERVER}, checked=checked, list_tasks=list_tasks)


def banner_of(*given: Any, checked: bool = True, list_tasks: bool = False) -> str:
    text = banner(*given, checked=checked, list_tasks=list_tasks)
    return re.sub(r"(?<=django_pgqueue )[^)]*(?=, PostgreSQL)", "<versions>", text)


def test_what_runs_and_where_to_look(settings: Any, monkeypatch: pytest.MonkeyPatch, wording: Any) -> None:
    monkeypatch.setattr(runqueueworker, "declared_tasks", lambda: [here])
    found = {
        "defaults": shown(),
        "queues": shown(queues=("mail", "default"), weights={"mail": 3}),
        "unchecked": shown(checked=False),
        "tasks": shown(list_tasks=True),
    }
    settings.PGQUEUE = {"RETENTION": timedelta(days=3), "FAILED_RETENTION": 90_000, "HEARTBEAT": 2.5}
    found["many options"] = shown(
        alias="other", exclude_queues=("slow", "mail"), processes=2, threads=1, async_slots=9, max_jobs=1,
        max_memory=500, grace=7.5, burst=True,
    )  # fmt: skip
    monkeypatch.setattr(runqueueworker, "declared_tasks", list)
    found["no tasks"] = shown()
    assert found == wording


def test_the_shards_and_their_processes(monkeypatch: pytest.MonkeyPatch, wording: Any) -> None:
    monkeypatch.setattr(runqueueworker, "declared_tasks", lambda: [here])
    shards = [WorkerOptions(), WorkerOptions(alias="s1", processes=3), WorkerOptions(alias="s2")]
    assert banner_of(shards, {"default": SERVER, "s2": SERVER._replace(version=180_004)}) == wording


HERE = "/admin/django_pgqueue/job/overview/"
SITES: dict[str, tuple[Any, str, list[str], list[str]]] = {
    # the URLs, the path under which the project is served, and the addresses for the databases
    "each site that shows the database": (sites, "/", [HERE], ["/ops/django_pgqueue/job/overview/"]),
    "below the path of the project": (sites, "/intranet/", [f"/intranet{HERE}"],
                                      ["/intranet/ops/django_pgqueue/job/overview/"]),
    # The name of Django's own site, "admin", finds the pages of any other one.
    "a site without pages does not lead to another one": (sites.other_urls, "/", [], [HERE]),
}  # fmt: skip


@pytest.mark.parametrize("case", SITES)
def test_the_addresses_of_the_admin(case: str, settings: Any) -> None:
    settings.ROOT_URLCONF, prefix, default, other = SITES[case]
    before = get_script_prefix()
    set_script_prefix(prefix)
    try:
        assert (admin_urls("default"), admin_urls("other")) == (default, other)
    finally:
        set_script_prefix(before)


@pytest.mark.parametrize("lacks", ["the URLs", "a module of URLs", "the app"])
def test_without_an_admin_the_line_is_left_out(lacks: str, settings: Any) -> None:
    assert "Admin:" in shown()
    if lacks == "the app":
        settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "django.contrib.admin"]
        assert admin.site.is_registered(Job)
    else:
        settings.ROOT_URLCONF = {"the URLs": "tests.processes"}.get(lacks, "tests.no_such_module")
    assert "Admin:" not in shown()


# --- --reload

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


@pytest.mark.parametrize("looked", [True, False])
@pytest.mark.parametrize(("name", "at"), [("new", 0), ("old", -30), ("old", -1800), ("old", 3600)])
def test_which_files_changed(files: SourceFiles, tmp_path: Path, looked: bool, name: str, at: float) -> None:
    """At the first look: what is newer than its import. Later also what is restored with an old time."""
    assert not looked or files.changed() is None
    save(tmp_path / f"{name}.py", at)
    assert files.changed() == (tmp_path / f"{name}.py" if looked or at in {0, -30} else None)
    assert files.changed() is None
    save(tmp_path / "old.py", 7200)
    assert files.changed() == tmp_path / "old.py"


def test_what_is_imported_counts_and_the_packages_of_apps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.py", "inner/__init__.py", "inner/b.py", "node_modules/c.py", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    files = SourceFiles(0)
    folders = [SimpleNamespace(path=str(folder)) for folder in (tmp_path, tmp_path / "removed")]
    monkeypatch.setattr(apps, "get_app_configs", lambda: folders)
    watched = set(files.watched_files())
    assert Path(_reload.__file__) in watched, "it is imported"
    found = {str(path.relative_to(tmp_path)) for path in watched if path.is_relative_to(tmp_path)}
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


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = [signal.getsignal(number) for number in HANDLED]
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup, where it stays ignored
    yield
    for number, handler in zip(HANDLED, before, strict=True):
        signal.signal(number, handler)


class Reloader:
    """The reloader, with programs in the place of the command."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_reload, "LOOK_EVERY", 0.01)
        self._patch = monkeypatch.setattr
        self.said: list[str] = []

    def run(self, *programs: str, looks: Iterable[Any] = ()) -> int:
        """Start them one after another, and find this at each look for changes. Return the exit code."""
        commands = ([sys.executable, "-I", "-S", "-c", program] for program in programs)
        found = iter(looks)
        self._patch(_reload, "get_child_arguments", lambda: next(commands))
        self._patch(SourceFiles, "changed", lambda files: next(found))
        code = run_reloader(self.said.append)
        assert [*commands, *found] == []
        return code


@pytest.fixture
def reloader(monkeypatch: pytest.MonkeyPatch) -> Reloader:
    return Reloader(monkeypatch)


# Each gets its signal only once it can handle it: it makes the reloader hear of it itself.
HEARS = """
import os, signal, sys, time
signal.signal(signal.{0}, lambda *_: sys.exit({1}))
os.kill(os.getppid(), signal.{0})
while True:  # a signal that comes just before signal.pause() would not end it
    time.sleep(0.01)
"""


@pytest.mark.parametrize("code", [0, USAGE])
def test_a_child_follows_until_one_has_ended_for_good(reloader: Reloader, code: int) -> None:
    assert reloader.run(*(f"raise SystemExit({each})" for each in (RELOAD, RELOAD, code))) == code
    assert reloader.said == []


@pytest.mark.parametrize(
    ("program", "code"), [("a syntax error", 1), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_after_errors_it_waits_for_a_change(reloader: Reloader, program: str, code: int) -> None:
    assert reloader.run(program, "raise SystemExit(0)", looks=[None, None, Path("saved.py")]) == 0
    assert reloader.said == [f"The command ended with exit code {code}. It starts again when a file changes."]


@pytest.mark.parametrize(
    ("name", "ends", "code"), [*((each.name, 7, 7) for each in HANDLED), ("SIGINT", RELOAD, 0)]
)
def test_a_signal_is_handed_on(reloader: Reloader, name: str, ends: int, code: int) -> None:
    """Race: the child ends because of a change, and the user has pressed Ctrl-C meanwhile. That is a stop."""
    assert reloader.run(HEARS.format(name, ends)) == code


def test_a_stop_while_it_waits_for_a_change_ends_it(reloader: Reloader) -> None:
    def ctrl_c() -> Iterator[None]:
        signal.raise_signal(signal.SIGINT)
        yield

    assert reloader.run("raise SystemExit(1)", looks=ctrl_c()) == 0
