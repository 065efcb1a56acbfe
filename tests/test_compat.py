"""The package ``django-tasks``, in its two spellings, alone and beside Django's own ``django.tasks``."""

from __future__ import annotations

from pathlib import Path

import django
import pytest

from tests.tasks.test_task import in_a_fresh_process

FILES = {
    "__init__.py": """
from django.tasks import TaskBackendHandler
from .base import Task, TaskContext, TaskResult, TaskResultStatus, task
task_backends = TaskBackendHandler()
""",
    "base.py": """
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, ParamSpec, TypeVar
P = ParamSpec("P")
T = TypeVar("T")
class TaskResultStatus(StrEnum):
    SUCCESSFUL = "SUCCESSFUL"
@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[P, T]):
    func: Any
    priority: int = 0
    backend: str = "default"
    queue_name: str = "default"
    run_after: Any = None
    takes_context: bool = False
    def get_backend(self):
        from . import task_backends
        return task_backends[self.backend]
    def using(self, **changes):
        found = replace(self, **changes)
        found.get_backend().validate_task(found)
        return found
    def enqueue(self, *args, **kwargs):
        return self.get_backend().enqueue(self, args, kwargs)
    @property
    def module_path(self):
        return f"{self.func.__module__}.{self.func.__qualname__}"
def task(function, backend="default"):
    from . import task_backends
    return getattr(task_backends[backend], "task_class", Task)(func=function, backend=backend)
@dataclass(frozen=True, slots=True, kw_only=True)
class TaskError:
    traceback: str
@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult(Generic[T]):
    id: str
@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    task_result: TaskResult
""",
    "backends/__init__.py": "",
    "backends/base.py": """
class BaseTaskBackend:
    supports_defer = supports_async_task = supports_get_result = supports_priority = False
    def __init__(self, alias, params):
        self.alias = alias
    def check(self, **kwargs):
        return []
""",
    "backends/other.py": """
from .base import BaseTaskBackend
class OtherBackend(BaseTaskBackend):
    pass
""",
    "exceptions.py": """
from django.core.exceptions import ImproperlyConfigured
class TaskException(Exception): pass
class {task}(TaskException): pass
class {backend}(ImproperlyConfigured): pass
class TaskResultDoesNotExist(TaskException): pass
class TaskResultMismatch(TaskException): pass
""",
    "signals.py": """
from django.dispatch import Signal
task_enqueued, task_finished, task_started = Signal(), Signal(), Signal()
def log(**kwargs): pass
for each in (task_enqueued, task_finished, task_started):
    each.connect(log)
""",
}
NAMES = [("InvalidTaskError", "InvalidTaskBackendError"), ("InvalidTask", "InvalidTaskBackend")]

pytestmark = pytest.mark.skipif(django.VERSION < (6, 0), reason="the stub stands on django.tasks")


def write(folder: Path, task: str, backend: str) -> Path:
    """Write the package into the folder, and return its own."""
    for name, text in FILES.items():
        file = folder / "django_tasks" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("{task}", task).replace("{backend}", backend))
    return folder / "django_tasks"


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
        "theirs": {"BACKEND": "django_tasks.backends.other.OtherBackend"},
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
