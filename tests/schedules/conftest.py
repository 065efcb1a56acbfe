"""A registry of declarations that is empty at the start of a test, and apps that declare schedules."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import override_settings

from django_pgqueue.schedules.declare import _declared
from django_pgqueue.tasks.task import _declared as _tasks


@pytest.fixture
def registry() -> Iterator[None]:
    """Forget what the test declares, and let it see nothing else."""
    before = dict(_declared)
    _declared.clear()
    yield
    _declared.clear()
    _declared.update(before)


class App:
    """An installed app with a module ``tasks``."""

    def __init__(self, folder: Path, name: str, module: str = "tasks") -> None:
        self.name = name
        self.module = f"{name}.{module}"
        self._folder = folder
        self._file = folder / name / f"{module}.py"

    def in_module(self, module: str) -> App:
        """Return the same app, to be changed in another module."""
        return App(self._folder, self.name, module)

    def deploy(self, *lines: str) -> None:
        """Replace the module and let a new process begin: nothing of the old one is imported."""
        self._file.write_text("\n".join(("from django_pgqueue import schedule, task", *lines, "")))
        self.forget()

    def forget(self) -> None:
        """Let nothing be left of the module in this process."""
        sys.modules.pop(self.module, None)
        for name in [name for name, (_, each) in _declared.items() if each.declared_by == self.module]:
            del _declared[name]
        for key, task in list(_tasks.items()):
            if task.func.__module__ == self.module:
                del _tasks[key]

    def schedule(self, options: str, *, function: str = "report") -> None:
        """Deploy one task with one schedule."""
        self.deploy(f"@schedule({options})", "@task(queue_name='reports')", f"def {function}(day=0): pass")

    def remove(self) -> None:
        """Delete the module."""
        self.deploy()
        self._file.unlink()


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: None) -> Iterator[App]:
    """Make an app and install it."""
    name = f"app_{uuid4().hex}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    app = App(tmp_path, name)
    app.deploy()
    with override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, name]):
        yield app
    for module in ("tasks", "reports"):
        app.in_module(module).forget()
