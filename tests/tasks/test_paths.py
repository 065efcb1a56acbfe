"""Workers import only modules that may declare tasks, and one that fails affects nothing else. A task that
they would not find is told of before.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from uuid import uuid4

import pytest
from django.core.management import CommandError
from django.test import override_settings

from django_pgqueue.admin.schedules.admin import suggestions
from django_pgqueue.checks import tasks as checks
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import UnknownTask
from django_pgqueue.tasks import paths
from django_pgqueue.tasks.paths import discover, task_modules
from django_pgqueue.tasks.registry import declared_queues, known_tasks
from django_pgqueue.tasks.task import find_task
from tests.management.test_subcommands import run

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
    assert (
        message.hint
        == f"Write '{name}.tasks' instead of '{project}.{name}.tasks' wherever the module is imported."
    )


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
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True,
        check=False, env={"PYTHONPATH": f".:{tmp_path}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    end = "or import the module in one that is named there, or in ready() of an app."
    assert done.stdout.splitlines() == [
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
