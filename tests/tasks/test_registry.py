"""Tasks are found in the modules that TASK_MODULES names, and a module that fails affects nothing else."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_pgqueue import conf
from django_pgqueue.admin.schedules.admin import suggestions
from django_pgqueue.checks import tasks as checks
from django_pgqueue.tasks import paths
from django_pgqueue.tasks.paths import discover, task_modules
from django_pgqueue.tasks.registry import declared_queues, known_tasks
from django_pgqueue.tasks.task import find_task

Install = Callable[..., str]
TASK = "from django_pgqueue import task\n@task(queue_name='{queue}')\ndef {name}(): ...\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs an app with the given modules, alone, and forgets what has failed afterwards."""
    with ExitStack() as stack:

        def make(task_modules: list[str], /, **files: str) -> str:
            name = f"app_{uuid4().hex}"
            for module, source in {"__init__": "", **files}.items():
                path = (tmp_path / name / module.replace("__in__", "/")).with_suffix(".py")
                path.parent.mkdir(exist_ok=True, parents=True)
                path.write_text(source)
            monkeypatch.syspath_prepend(tmp_path)
            settings = {"INSTALLED_APPS": ["django_pgqueue", name], "PGQUEUE": {"TASK_MODULES": task_modules}}
            stack.enter_context(override_settings(**settings))
            return name

        yield make
        paths._failed.clear()


def test_modules_packages_and_other_names(install: Install) -> None:
    name = install(
        ["tasks", "jobs", "missing", "work.mail", "work.none"],
        tasks__in____init__=TASK.format(queue="a", name="first"),
        jobs=TASK.format(queue="b", name="second"),
        work__in____init__="",
        work__in__mail=TASK.format(queue="c", name="third"),
        others=TASK.format(queue="d", name="fourth"),
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
    name = install(["broken", "tasks"], broken=source, tasks=TASK.format(queue="a", name="first"))
    with caplog.at_level(logging.WARNING):
        assert f"{name}.tasks.first" in known_tasks()
        assert list(discover()) == [f"{name}.broken"]
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{name}.broken cannot be imported: ")


@pytest.mark.parametrize("value", ["tasks", [], [""], ["a-b"], [1], None, ["a..b"]])
def test_bad_values(value: object) -> None:
    with override_settings(PGQUEUE={"TASK_MODULES": value}):
        (problem,) = conf.problems()
        assert "names of modules in the apps" in problem.hint
        assert checks.check_tasks(None) == []  # E003 tells


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
    out = StringIO()
    call_command("pgqueue", "tasks", stdout=out)
    text = out.getvalue()
    shown = text[text.index(f"async {name}.tasks.first") :]
    assert "  Queue:       mail, priority 5\n  Policy:      max_attempts=3, backoff=[1.0, 2.0], " in shown
    assert "fail_on=[ValueError], unique=" in shown
    assert "rate_limit=3 in 1:00:00" in shown
    assert f"  Schedules:   {unique}-nightly" in shown
    assert f"{name}/tasks.py:3" in shown
    assert f"{name}.tasks.second\n  Queue:       default\n  Policy:      the defaults\n" in shown
    out = StringIO()
    call_command("pgqueue", "tasks", "--json", stdout=out)
    (first,) = [each for each in json.loads(out.getvalue()) if each["path"] == f"{name}.tasks.first"]
    assert (first["queue_name"], first["async"], first["policy"]["max_attempts"]) == ("mail", True, "3")
    install(["tasks"], tasks="import nowhere")
    with pytest.raises(CommandError, match="tasks cannot be imported, so its tasks are missing: ModuleNot"):
        call_command("pgqueue", "tasks", stdout=StringIO())


def test_the_task_of_the_admin_is_not_one_of_the_project() -> None:
    assert find_task("django_pgqueue.admin.bulk.task.run").priority == 100
    assert not [path for path in known_tasks() if path.startswith("django_pgqueue.")]
