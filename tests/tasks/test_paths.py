"""Workers import only modules that may declare tasks, and one that fails affects nothing else. A task that
they would not find is told of before.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError
from django.db import transaction
from django.test import override_settings
from hypothesis import given, settings, strategies as st

from django_pgqueue import task
from django_pgqueue.admin.schedules.admin import suggestions
from django_pgqueue.checks import tasks as checks
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import UnknownTask
from django_pgqueue.tasks import paths
from django_pgqueue.tasks.paths import discover, task_modules
from django_pgqueue.tasks.registry import declared_queues, known_tasks
from django_pgqueue.tasks.signatures import _problem, check_call
from django_pgqueue.tasks.task import find_task
from tests.management.test_subcommands import run
from tests.tasks.test_task import in_a_fresh_process

Install = Callable[..., str]
TASK = "from django_pgqueue import task\n@task\ndef run(): ...\n"
FORBIDDEN = "raise SystemExit('it was imported')"


def write(folder: Path, **files: str) -> None:
    """Write modules. The names of those in packages have __in__ for the slash."""
    for module, source in {"__init__": "", **files}.items():
        path = (folder / module.replace("__in__", "/")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(source)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs an app with the given modules, alone."""
    with ExitStack() as stack:

        def make(task_modules: list[str], /, project: str = "", **files: str) -> str:
            name = f"app_{uuid4().hex}"
            write(tmp_path / project / name, **files)
            if project:
                write(tmp_path / project)
            monkeypatch.syspath_prepend(tmp_path / project)
            monkeypatch.syspath_prepend(tmp_path)
            settings = {"INSTALLED_APPS": ["django_pgqueue", name], "PGQUEUE": {"TASK_MODULES": task_modules}}
            stack.enter_context(override_settings(**settings))
            return name

        yield make
        paths._failed.clear()


@pytest.mark.promise("only-modules-of-tasks")
def test_a_job_does_not_import_other_modules_of_an_installed_app(install: Install) -> None:
    name = install(
        ["tasks"], scripts__in____init__="", scripts__in__wipe=FORBIDDEN, tasks=TASK, mail=FORBIDDEN
    )
    with pytest.raises(UnknownTask, match=r"Add 'scripts.wipe' to TASK_MODULES in PGQUEUE"):
        find_task(f"{name}.scripts.wipe.run")
    with pytest.raises(UnknownTask, match=r"is not imported because of a job. Add 'mail' to TASK_MODULES"):
        find_task(f"{name}.mail.run")
    with pytest.raises(UnknownTask, match="ModuleNotFoundError"):
        find_task(f"{name}.missing.run")


def test_a_job_imports_the_modules_of_a_package_of_tasks_and_what_they_import(install: Install) -> None:
    name = install(
        ["tasks", "work.jobs"],
        tasks__in____init__="",
        tasks__in__mail=TASK,
        work__in____init__="",
        work__in__jobs="from .. import helpers\n",
        work__in__others=FORBIDDEN,
        helpers=TASK,
    )
    assert find_task(f"{name}.tasks.mail.run").queue_name == "default"
    assert find_task(f"{name}.helpers.run").queue_name == "default"
    with pytest.raises(UnknownTask, match=r"work\.others"):
        find_task(f"{name}.work.others.run")


def test_a_module_that_is_imported_already_is_used(install: Install) -> None:
    name = install(["tasks"], others=TASK)
    import_module(f"{name}.others")
    assert find_task(f"{name}.others.run").queue_name == "default"


def test_a_task_by_the_other_name_of_its_module_is_refused_where_it_is_made(install: Install) -> None:
    """The folder of the project and the one above it are on the path, so each module has two names."""
    project = f"project_{uuid4().hex}"
    name = install(["tasks"], project, tasks=TASK)
    with pytest.raises(UnknownTask, match=f"import the task from '{name}.tasks' everywhere"):
        find_task(f"{project}.{name}.tasks.run")
    module = import_module(f"{project}.{name}.tasks")
    with pytest.raises(InvalidTask, match=f"workers import its module as '{name}.tasks' only"):
        paths.check_path(module.run.func)
    (message,) = [each for each in checks.check_tasks(None) if project in each.msg]
    assert message.id == "pgqueue.E027"
    assert f"Write '{name}.tasks' instead of '{project}.{name}.tasks' wherever" in str(message.hint)


def test_of_an_app_that_is_installed_by_its_long_name_too(install: Install) -> None:
    project = f"project_{uuid4().hex}"
    name = install(["tasks"], project, tasks=TASK)
    with override_settings(INSTALLED_APPS=["django_pgqueue", f"{project}.{name}"]):
        module = import_module(f"{name}.tasks")
        with pytest.raises(InvalidTask, match=f"as '{project}.{name}.tasks' only"):
            paths.check_path(module.run.func)


def test_w014_tells_of_modules_that_workers_would_not_import(tmp_path: Path) -> None:
    ready = (
        "from django.apps import AppConfig\nclass Shop(AppConfig):\n    name = 'shop'\n"
        "    def ready(self):\n        from . import early\n"
    )
    lazy = "def view():\n    from . import lazy\nfrom .deep import mail\n"
    write(
        tmp_path / "shop", apps=ready, early=TASK, tasks=TASK + lazy, lazy=TASK, forgotten=TASK,
        deep__in____init__="", deep__in__mail="import shop.found\n" + TASK, found=TASK,
    )  # fmt: skip
    write(tmp_path / "elsewhere", tasks=TASK)
    code = """
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_pgqueue", "shop"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
)
django.setup()
import shop.found, shop.forgotten, shop.lazy, elsewhere.tasks
from django.core.checks import run_checks
for message in run_checks(tags=["pgqueue"]):
    if message.id != "pgqueue.W001":
        print(message.id, message.msg.split()[4], message.hint)
"""
    end = "or import the module in one that is named there, or in ready() of an app."
    assert in_a_fresh_process(code, tmp_path).splitlines() == [
        f"pgqueue.W014 elsewhere.tasks, Put an app that contains elsewhere.tasks into INSTALLED_APPS, {end}",
        f"pgqueue.W014 shop.forgotten, Add 'forgotten' to PGQUEUE['TASK_MODULES'], {end}",
        f"pgqueue.W014 shop.lazy, Add 'lazy' to PGQUEUE['TASK_MODULES'], {end}",
    ]


# -- the tasks that are known

NAMED = "from django_pgqueue import task\n@task(queue_name='{queue}')\ndef {name}(): ...\n"


def test_modules_packages_and_other_names(install: Install) -> None:
    name = install(
        ["tasks", "jobs", "missing", "work.mail", "work.none"],
        tasks__in____init__=NAMED.format(queue="a", name="first"),
        jobs=NAMED.format(queue="b", name="second"),
        work__in____init__="",
        work__in__mail=NAMED.format(queue="c", name="third"),
        others=NAMED.format(queue="d", name="fourth"),
    )
    assert list(task_modules()) == [f"{name}.tasks", f"{name}.jobs", f"{name}.work.mail"]
    assert f"{name}.tasks" not in sys.modules  # nothing is imported before somebody needs it
    ours = [path for path in known_tasks() if path.startswith(name)]
    assert ours == [f"{name}.jobs.second", f"{name}.tasks.first", f"{name}.work.mail.third"]
    assert {"a", "b", "c"} <= declared_queues()
    assert set(ours) <= set(suggestions()["pgqueue-tasks"])
    assert [each for each in checks.check_tasks(None) if name in each.msg] == []


@pytest.mark.parametrize("source", ["1 / 0", "import nowhere", "raise SystemExit(3)", "def x(:"])
def test_a_module_that_fails_is_named_once_and_stops_nothing(
    install: Install, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = install(["broken", "tasks"], broken=source, tasks=NAMED.format(queue="a", name="first"))
    with caplog.at_level(logging.WARNING):
        assert f"{name}.tasks.first" in known_tasks()
        assert list(discover()) == [f"{name}.broken"]
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{name}.broken cannot be imported: ")


@pytest.mark.django_db
def test_the_command_lists_tasks_and_fails_if_a_module_does(install: Install) -> None:
    source = (
        "from datetime import timedelta\nfrom django_pgqueue import schedule, task, Unique, RateLimit\n"
        "@schedule(name='{0}-nightly', every=60)\n@task(queue_name='mail', priority=5, max_attempts=3,\n"
        "    backoff=[1, 2], fail_on=ValueError, unique=Unique(),\n"
        "    rate_limit=RateLimit(3, per=timedelta(hours=1)))\n"
        "async def first(): ...\n@task\ndef second(): ...\n"
    )
    unique = uuid4().hex
    name = install(["tasks"], tasks=source.format(unique))
    head, *lines = run("tasks").splitlines()
    assert head.split() == ["Task", "Queue", "Priority", "Policy", "Schedules", "Declared", "in"]
    first, second = (re.split(r" {2,}", line) for line in lines if f"{name}." in line)
    assert first[:3] == [f"async {name}.tasks.first", "mail", "5"]
    assert first[3].startswith("max_attempts=3, backoff=[1.0, 2.0], fail_on=[ValueError], unique=")
    assert "rate_limit=3 in 1:00:00" in first[3]
    assert first[4:] == [f"{unique}-nightly", first[5]]
    assert first[5].endswith(f"{name}/tasks.py:3")
    assert second[:5] == [f"{name}.tasks.second", "default", "0", "-", "-"]
    (first,) = [each for each in json.loads(run("tasks", "--json")) if each["path"] == f"{name}.tasks.first"]
    assert (first["queue_name"], first["async"], first["policy"]["max_attempts"]) == ("mail", True, "3")
    install(["tasks"], tasks="import nowhere")
    with pytest.raises(CommandError, match="tasks cannot be imported, so its tasks are missing: ModuleNot"):
        run("tasks")


def test_the_task_of_the_admin_is_not_one_of_the_project() -> None:
    assert find_task("django_pgqueue.admin.bulk.task.run").priority == 100
    assert not [path for path in known_tasks() if path.startswith("django_pgqueue.")]


# --- Whether the arguments of a call fit the function of its task


KINDS = ("", "=None")
NAMES = ("a", "b", "c", "d", "e", "f", "other")


@st.composite
def functions(draw: Callable[..., Any]) -> Any:
    """A function with up to two parameters of each kind, with defaults and without."""
    names = iter(NAMES)
    counts = [draw(st.integers(0, 2)) for _ in range(3)]
    required = draw(st.integers(0, counts[0] + counts[1]))
    positional = [next(names) + KINDS[at >= required] for at in range(counts[0] + counts[1])]
    keywords = [next(names) + draw(st.sampled_from(KINDS)) for _ in range(counts[2])]
    parts = [*positional[: counts[0]], *(["/"] if counts[0] else []), *positional[counts[0] :]]
    any_number = draw(st.booleans())
    parts += ["*more"] if any_number else ["*"] if keywords else []
    parts += keywords + (["**rest"] if draw(st.booleans()) else [])
    scope: dict[str, Any] = {}
    exec(f"def function({', '.join(parts)}): ...", scope)  # noqa: S102
    return scope["function"]


def accepts(call: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        call(*args, **kwargs)
    except TypeError:
        return False
    return True


@given(functions(), st.lists(st.just(1), max_size=6), st.sets(st.sampled_from(NAMES)), st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_check_and_python_agree(
    function: Any, args: list[int], names: set[str], takes_context: bool
) -> None:
    given = [None, *args] if takes_context else args
    right = accepts(function, *given, **dict.fromkeys(names, 1))
    assert (_problem(function, len(given), tuple(names)) == "") == right


@task
def order(number: int, /, note: str = "", *, urgent: bool, color: str = "") -> None: ...


@task(takes_context=True)
def in_context(context: Any, number: int) -> None: ...


@pytest.mark.parametrize(("called", "args", "kwargs", "words"), [
    (order, (), {"urgent": True}, "order() missing a required argument: 'number'"),
    (order, (1, "", 3), {"urgent": True}, "order(): too many positional arguments"),
    (order, (1, ""), {"note": "", "urgent": True}, "order(): multiple values for argument 'note'"),
    (order, (1,), {"urgent": True, "x": 1}, "order() got an unexpected keyword argument 'x'"),
    # The rest of these two messages depends on the version of Python.
    (order, (), {"number": 1, "urgent": True}, "order()"),
    (order, (1,), {"note": ""}, "order() missing a required"),
    (in_context, (), {}, "in_context() missing a required argument: 'number'"),
    (in_context, (None, 1), {}, "in_context(): too many positional arguments"),
    (in_context, (1,), {"context": None}, "in_context(): multiple values for argument 'context'"),
])  # fmt: skip
def test_the_words(called: Any, args: Any, kwargs: Any, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        check_call(called, args, kwargs)
    assert type(caught.value) is TypeError
    assert str(caught.value).startswith(f"tests.tasks.test_paths.{words}")


def test_what_bind_overlooks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect.Signature, "bind", lambda *args, **kwargs: None)
    with pytest.raises(TypeError, match=r"order\(\) got some positional-only arguments passed as keyword"):
        check_call(order, [], {"number": 1, "urgent": True})


def injects(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function("client", *args, **kwargs)

    return inner


@contextmanager
def surrounding() -> Any:
    yield


@asynccontextmanager
async def asurrounding() -> Any:
    yield


@task
@injects
def fetch(client: str, url: str) -> None: ...


@task
@transaction.atomic
@surrounding()
def wrapped(number: int) -> None: ...


@task
@asurrounding()
async def awrapped(number: int) -> None: ...


def test_a_decorator_that_passes_arguments_of_its_own_is_let_through() -> None:
    check_call(fetch, ["https://example.com"], {})


@pytest.mark.parametrize("called", [wrapped, awrapped])
def test_what_contextlib_wraps_counts_itself(called: Any) -> None:
    check_call(called, [1], {})
    with pytest.raises(TypeError, match=r"wrapped\(\) missing a required argument: 'number'"):
        check_call(called, [], {})


def declared(number: int) -> None: ...


def test_a_wrapper_may_say_how_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    function = injects(declared)
    function.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="too many positional arguments"):
        check_call(task(function), [1], {})
