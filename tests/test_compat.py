"""The package ``django-tasks``, in its two spellings, alone and beside Django's own ``django.tasks``."""

from __future__ import annotations

import re
import shutil
from importlib import import_module
from pathlib import Path

import django
import pytest

from tests.tasks.test_task import in_a_fresh_process

NAMES = [("InvalidTaskError", "InvalidTaskBackendError"), ("InvalidTask", "InvalidTaskBackend")]

pytestmark = pytest.mark.skipif(django.VERSION < (6, 0), reason="the package is made of django.tasks")


#: What is different in the package, besides its name and those of its exceptions: its classes are generic.
CHANGES = {
    r"django\.tasks": "django_tasks",
    r"\bInvalidTask\b": "{task}",
    r"\bInvalidTaskBackend\b": "{backend}",
    r"from typing import Any": "from typing import Any, Generic, ParamSpec, TypeVar",
    r"class TaskResultStatus": 'P, T = ParamSpec("P"), TypeVar("T")\n\n\nclass TaskResultStatus',
    r"class Task:": "class Task(Generic[P, T]):",
    r"class TaskResult:": "class TaskResult(Generic[T]):",
}


def write(folder: Path, task: str, backend: str) -> Path:
    """Make the package of what became ``django.tasks``, in this folder. Return its own."""
    package = folder / "django_tasks"
    shutil.copytree(Path(str(import_module("django.tasks").__file__)).parent, package)
    for file in package.rglob("*.py"):
        text = file.read_text()
        for pattern, by in CHANGES.items():
            text = re.sub(pattern, by.format(task=task, backend=backend), text)
        file.write_text(text)
    return package


def test_what_is_imported_with_either_name_of_the_exceptions_or_a_backport_that_is_broken(
    tmp_path: Path,
) -> None:
    """An old Django needs it. Beside Django's own tasks, one that cannot be imported does not matter."""
    for number, names in enumerate(NAMES):
        write(tmp_path / str(number), *names)
    (write(tmp_path / "broken", *NAMES[0]) / "base.py").write_text("1 / 0\n")
    code = f"""
import sys
import django
from django.conf import settings
settings.configure()
new, old = django.VERSION, (5, 2, 0, "final", 0)
for folder, django.VERSION in (("0", old), ("1", old), ("broken", new)):
    for name in [name for name in sys.modules if name.startswith(("django_pgqueue", "django_tasks"))]:
        del sys.modules[name]
    sys.path.insert(0, f"{tmp_path}/{{folder}}")
    from django_pgqueue import compat
    print(compat.PACKAGES[0], compat.InvalidTask.__module__, compat.InvalidTaskBackend.__mro__[1].__name__)
"""
    old = "django_tasks django_tasks.exceptions ImproperlyConfigured"
    assert in_a_fresh_process(code, tmp_path).splitlines() == [
        old,
        old,
        "django.tasks django.tasks.exceptions ImproperlyConfigured",
    ]


BESIDE = """
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_pgqueue"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
    TASKS={
        "default": {"BACKEND": "django_pgqueue.testing.DummyBackend"},
        "real": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"},
        "theirs": {"BACKEND": "django_tasks.backends.dummy.DummyBackend"},
    },
)
django.setup()
import django.tasks.exceptions
import django_tasks.exceptions
import django_tasks.signals
import jobs
from django.core.checks import run_checks
from django.tasks.signals import task_enqueued
from django.test.utils import setup_test_environment
from django_pgqueue.tasks.task import find_task
from django_pgqueue.worker.executor.task_signals import Announcer
setup_test_environment()
Theirs = getattr(django_tasks.exceptions, "InvalidTask", None) or django_tasks.exceptions.InvalidTaskError
"""


@pytest.mark.parametrize("names", NAMES, ids=["django-tasks 0.12", "its next release"])
def test_the_backport_beside_django(tmp_path: Path, names: tuple[str, str]) -> None:
    """Its exceptions catch ours, its signals are sent, and its tasks and backends are known."""
    write(tmp_path, *names)
    (tmp_path / "jobs.py").write_text(
        "from django_tasks import task\n"
        "def plain(n): return n\n"
        "def moved(n): return n\n"
        "plain, moved = task(plain), task(moved, backend='theirs')\n"
    )
    code = f"""{BESIDE}
for each in (Theirs, django.tasks.exceptions.InvalidTask):
    try:
        jobs.plain.using(queue_name="")
    except each as error:
        print(type(error).__name__)
for each in (django_tasks.exceptions, django.tasks.exceptions):
    try:
        django_tasks.task_backends["real"].get_result("x")
    except each.TaskResultDoesNotExist as error:
        print(type(error).__name__)
print(type(jobs.moved).__module__, run_checks(tags=["pgqueue"]))
print(jobs.moved.using(backend="default").enqueue(5).task.module_path)
print(find_task("jobs.moved").max_attempts)
def hear(task_result, **kwargs):
    print("heard", task_result.task.module_path)
def announced():
    announcer = Announcer()
    announcer._look()
    print(announcer._started, announcer._finished)
announced()
for each in (task_enqueued, django_tasks.signals.task_enqueued, django_tasks.signals.task_started):
    each.connect(hear)
jobs.plain.enqueue(5)
announced()
"""
    assert in_a_fresh_process(code, tmp_path).splitlines() == [
        "InvalidTask", "InvalidTask", "TaskResultDoesNotExist", "TaskResultDoesNotExist",
        "django_tasks.base []", "jobs.moved", "1", "False False", "heard jobs.plain", "heard jobs.plain",
        "True False",
    ]  # fmt: skip
