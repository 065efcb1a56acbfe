from __future__ import annotations

import builtins
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.core.checks import CheckMessage, run_checks
from django.core.checks.registry import registry
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

import django_pgqueue
from django_pgqueue import Concurrency, RateLimit, compat, conf, task
from django_pgqueue.checks import backends
from django_pgqueue.checks import tasks as checks
from django_pgqueue.tasks.task import Task, declared_tasks

OURS = {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}
DUMMY = {"BACKEND": f"{compat.DjangoTask.__module__.removesuffix('.base')}.backends.dummy.DummyBackend"}


@task
def fine(x: int) -> None: ...


def replaced(x: int) -> None: ...


def compat_is_djangos() -> bool:
    """Whether django.tasks comes with Django itself, and so does its check."""
    return compat.DjangoTask.__module__.startswith("django.")


class Router:
    """Sends everything to one database."""

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "other"


@pytest.fixture(autouse=True)
def only_tasks_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore each task that is there before the test: a traceback or a cycle may keep it for long."""
    before = list(declared_tasks())

    def declared() -> Iterator[Task[..., Any]]:
        return (each for each in declared_tasks() if all(each is not known for known in before))

    monkeypatch.setattr(checks, "declared_tasks", declared)


def found(messages: list[CheckMessage]) -> list[str]:
    """Return the ids of the messages. Each message must have a hint."""
    for message in messages:
        assert message.hint
        assert message.msg.strip()
    return sorted(str(message.id) for message in messages)


@pytest.fixture
def app_with_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Creates an installed app whose `tasks` module has the given source."""
    made: list[Any] = []

    def make(source: str) -> list[Any]:
        name = f"app_{uuid4().hex}"
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "tasks.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        override = override_settings(INSTALLED_APPS=[name])
        override.enable()
        made.append(override)
        return [apps.get_app_config(name)]

    yield make
    for override in made:
        override.disable()


def test_the_checks_are_registered_and_the_tests_own_settings_pass() -> None:
    with override_settings(TASKS={"default": OURS}):
        assert found(run_checks(tags=[backends.TAG])) == []
    with override_settings(PGQUEUE={"NO": 1}):
        assert found(run_checks(tags=[backends.TAG])) == ["pgqueue.E002", "pgqueue.W001"]


def test_e002_unknown_setting() -> None:
    with override_settings(PGQUEUE={"MAX_ATEMPTS": 1}):
        (message,) = checks.check_settings(None)
    assert message.id == "pgqueue.E002"
    assert "'MAX_ATEMPTS'" in message.msg
    assert message.hint == "Did you mean 'MAX_ATTEMPTS'?"


@pytest.mark.parametrize("given", [{"GRACE": -1}, {"BACKOFF_BASE": 7200}, 5])
def test_e003_bad_values(given: object) -> None:
    with override_settings(PGQUEUE=given):
        assert found(checks.check_settings(None)) == ["pgqueue.E003"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no.such.tenant", "cannot be imported: No module named 'no'"),
        ("tests.app.context_tasks.look", "is of type Task"),
        ("tests.app.context_tasks.TENANT", ""),
        ("language", ""),
    ],
)
def test_e018_a_context_variable_that_is_none(name: str, words: str) -> None:
    with override_settings(PGQUEUE={"CONTEXT": [name]}):
        messages = checks.check_settings(None)
    assert [message.id for message in messages] == (["pgqueue.E018"] if words else [])
    assert all(words in message.msg and "ContextVar" in str(message.hint) for message in messages)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no.such.receiver", "cannot be imported: No module named 'no'"),
        ("tests.settings.DATABASES", "is of type dict and cannot be called"),
        ("tests.checks.test_tasks.queue_of", "cannot be called with the alert: "),
        ("asyncio.sleep", "is async"),
        ("builtins.print", ""),
    ],
)
def test_e023_a_receiver_of_alerts_that_is_none(path: str, words: str) -> None:
    with override_settings(PGQUEUE={"ALERTS": ["builtins.print", path]}):
        messages = checks.check_settings(None)
    assert [message.id for message in messages] == (["pgqueue.E023"] if words else [])
    assert all(words in message.msg and path in message.msg for message in messages)
    with override_settings(PGQUEUE={"ALERTS": path, "NO": 1}):
        assert found(checks.check_settings(None)) == ["pgqueue.E002"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no.such.setup", "cannot be imported: No module named 'no'"),
        ("tests.settings.DATABASES", "cannot be called"),
        ("django.setup", ""),
        (None, ""),
    ],
)
def test_e024_a_setup_that_is_none(path: str | None, words: str) -> None:
    with override_settings(PGQUEUE={"SETUP": path}):
        messages = checks.check_settings(None)
    assert [message.id for message in messages] == (["pgqueue.E024"] if words else [])
    assert all(words in message.msg for message in messages)
    with override_settings(PGQUEUE={"SETUP": "setup"}):
        assert found(checks.check_settings(None)) == ["pgqueue.E003"]
        assert "the path of a callable" in conf.problems()[0].hint


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no.such.hook", "cannot be imported: No module named 'no'"),
        ("tests.settings.DATABASES", "is of type dict and cannot be called"),
        ("tests.checks.test_tasks.queue_of", "cannot be called with the "),
        ("asyncio.sleep", "is async"),
        ("builtins.print", ""),
    ],
)
@pytest.mark.parametrize("setting", ["BEFORE_ENQUEUE", "AROUND_ATTEMPT"])
def test_e024_a_hook_that_is_none(setting: str, path: str, words: str) -> None:
    with override_settings(PGQUEUE={setting: ["builtins.print", path]}):
        messages = checks.check_settings(None)
    assert [message.id for message in messages] == (["pgqueue.E024"] if words else [])
    assert all(f"PGQUEUE['{setting}'] names {path!r}" in message.msg for message in messages)
    assert all(words in message.msg for message in messages)
    with override_settings(PGQUEUE={setting: [print]}):
        assert found(checks.check_settings(None)) == ["pgqueue.E003"]
        assert "the path of a callable, or a list of them" in conf.problems()[0].hint


def queue_of(alert: object, queue: str) -> str:
    """Has one parameter too many to receive alerts."""
    return queue


def test_e018_waits_until_the_settings_are_valid() -> None:
    with override_settings(PGQUEUE={"CONTEXT": ["no.such.tenant"], "NO": 1}):
        assert found(checks.check_settings(None)) == ["pgqueue.E002"]


@pytest.fixture
def django_is_silenced(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """As when the app is ready, with the settings of the moment; undone at the end of the test."""
    monkeypatch.setattr(registry, "registered_checks", set(registry.registered_checks))
    return backends.silence_django


# What is in TASKS["default"]; what the hint says.
NO_BACKENDS: list[tuple[Any, str]] = [
    ({"BACKEND": "django_pgqueue.PgQueueBackend"}, f'Use "{OURS["BACKEND"]}".'),
    ({"BACKEND": "django_pgqueue.backends.PgQueueBackend"}, f'Use "{OURS["BACKEND"]}".'),
    ({"BACKEND": "django_pgqueue.backend.PgQueBackend"}, f'Use "{OURS["BACKEND"]}".'),
    ({"BACKEND": "django_pgqueue.backend"}, f'Use "{OURS["BACKEND"]}".'),
    ({"BACKEND": "no.such.Backend"}, "Correct the path."),
    ({"BACKEND": "django.core.mail.send_mail"}, "Correct the path."),
    ({"BACKEND": None}, "Correct the path."),
    ({}, f'Add "BACKEND": "{OURS["BACKEND"]}".'),
    (OURS["BACKEND"], "TASKS = {"),
]
# What is beside BACKEND; what the message says, what the hint says.
BAD_PARAMETERS: list[tuple[dict[str, Any], str, str]] = [
    ({"OPTIONS": {"databse": "x"}}, "no option 'databse'", "Did you mean 'database'?"),
    ({"OPTIONS": {"max_attempt": 5}}, "no option 'max_attempt'", "'MAX_ATTEMPTS' is the same for all"),
    ({"OPTIONS": {"colour": 1}}, "no option 'colour'", "The only option is 'database'"),
    ({"OPTIONS": {"database": 5}}, "must be an alias", "The aliases are default, other."),
    ({"OPTIONS": None}, "must be a dict, not None", "or remove it"),
    ({"OPTIONS": ["database"]}, "must be a dict", "or remove it"),
    ({"QUEUES": "mail"}, "must be a list of names, not 'mail'", "Use \"QUEUES\": ['mail']"),
    ({"QUEUES": None}, "must be a list of names, not None", "or remove it"),
    ({"QUEUES": ["q" * 101]}, "1 to 100 letters", "Correct the name."),
]


@pytest.mark.parametrize(("entry", "hint"), NO_BACKENDS)
def test_e004_an_entry_that_is_no_backend(
    entry: Any, hint: str, django_is_silenced: Callable[[], None]
) -> None:
    with override_settings(TASKS={"default": entry}):
        django_is_silenced()
        (message,) = [each for each in run_checks() if each.is_serious()]
    assert message.id == "pgqueue.E004"
    assert "TASKS['default']" in message.msg
    assert hint in str(message.hint)
    assert OURS["BACKEND"] in str(message.hint)


@pytest.mark.parametrize("tasks", [["x"], OURS["BACKEND"], 5])
def test_e004_tasks_that_is_no_dict(tasks: Any, django_is_silenced: Callable[[], None]) -> None:
    with override_settings(TASKS=tasks):
        django_is_silenced()
        (message,) = [each for each in run_checks() if each.is_serious()]
    assert message.id == "pgqueue.E004"
    assert backends.LINES in str(message.hint)


@pytest.mark.parametrize(("params", "words", "hint"), BAD_PARAMETERS)
def test_e005_a_backend_of_ours_with_bad_parameters(
    params: dict[str, Any], words: str, hint: str, django_is_silenced: Callable[[], None]
) -> None:
    with override_settings(TASKS={"default": {**OURS, **params}}):
        django_is_silenced()
        (message,) = [each for each in run_checks() if each.is_serious()]
    assert message.id == "pgqueue.E005"
    assert words in message.msg
    assert hint in str(message.hint)


@pytest.mark.skipif(not compat_is_djangos(), reason="the package is not among the apps of the tests")
def test_djangos_own_check_is_left_alone_while_it_says_more_than_ours(
    django_is_silenced: Callable[[], None],
) -> None:
    with override_settings(TASKS={"default": OURS}):
        django_is_silenced()
    with (
        override_settings(TASKS={"default": {"BACKEND": "no.such.Backend"}}),
        pytest.raises(compat.InvalidTaskBackend, match="Could not find backend"),
    ):
        run_checks()


BROKEN_PROJECT = f"""
import sys
from django.conf import settings
from django.core.management import execute_from_command_line
settings.configure(
    INSTALLED_APPS=["django_pgqueue", *{[] if compat_is_djangos() else ["django_tasks"]}],
    DATABASES={{"default": {{"ENGINE": "django.db.backends.postgresql", "PORT": "1", "HOST": "127.0.0.1"}}}},
    TASKS={{"default": {{"BACKEND": "django_pgqueue.PgQueueBackend"}}}},
)
execute_from_command_line(sys.argv)
"""


@pytest.mark.parametrize("command", ["check", "runqueueworker"])
def test_a_command_shows_what_is_wrong_with_tasks_and_no_traceback(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BROKEN_PROJECT, command],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert (
        "(pgqueue.E004) TASKS['default']: the BACKEND 'django_pgqueue.PgQueueBackend' cannot" in done.stderr
    )
    assert f'HINT: Use "{OURS["BACKEND"]}".' in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_path_that_is_met_while_apps_load_names_the_right_one() -> None:
    """Django shows the words of an ImportError only, in the last line of its traceback."""
    with (
        override_settings(TASKS={"default": {"BACKEND": "django_pgqueue.PgQueueBackend"}}),
        pytest.raises(compat.InvalidTaskBackend, match=re.escape(f'"{OURS["BACKEND"]}"')),
    ):
        compat.task_backends["default"]
    assert not hasattr(django_pgqueue, "backends")


def test_e005_a_database_that_does_not_exist() -> None:
    with override_settings(TASKS={"default": {**OURS, "OPTIONS": {"database": "nowhere"}}}):
        (message,) = checks.check_databases(None)
    assert message.id == "pgqueue.E005"
    assert "'nowhere'" in message.msg
    assert "TASKS['default']['OPTIONS']['database']" in message.msg
    assert "default" in str(message.hint)


def test_e005_a_task_whose_database_does_not_exist() -> None:
    lost = task(database="nowhere")(replaced)
    (message,) = checks.check_databases(None)
    assert lost.module_path in message.msg


def test_e017_an_alias_too_long_for_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = "x" * 43
    for alias, ids in ((longest, []), (f"{longest}x", ["pgqueue.E017"])):
        monkeypatch.setitem(connections.settings, alias, connections.settings["other"])
        with override_settings(TASKS={"default": {**OURS, "OPTIONS": {"database": alias}}}):
            assert found(checks.check_databases(None)) == ids
        del connections[alias]


def test_w001_the_default_backend_is_foreign() -> None:
    with override_settings(TASKS={"default": DUMMY}):
        (message,) = checks.check_backends(None)
        assert message.id == "pgqueue.W001"
        assert not message.is_serious()
        assert OURS["BACKEND"] in str(message.hint)
    with override_settings(TASKS={"default": DUMMY, "pg": OURS}):
        (message,) = checks.check_backends(None)
        assert "'pg'" in str(message.hint)


@pytest.mark.parametrize("tasks", [{"default": OURS}, {"pg": OURS}, {"default": OURS, "other": DUMMY}, {}])
def test_no_warning_about_backends(tasks: dict[str, Any]) -> None:
    with override_settings(TASKS=tasks):
        assert found(checks.check_backends(None)) == []


def test_w001_without_tasks_django_runs_its_tasks_at_once() -> None:
    (message,) = checks.check_backends(None)
    assert message.id == "pgqueue.W001"
    assert "TASKS is not set" in message.msg
    assert compat.DjangoTask.__module__.removesuffix(".base") in message.msg
    lines = str(message.hint)
    assert backends.LINES in lines
    assert 'SILENCED_SYSTEM_CHECKS = ["pgqueue.W001"]' in lines
    # They can be pasted.
    pasted: dict[str, Any] = {}
    exec(backends.LINES, pasted)  # noqa: S102
    with override_settings(TASKS=pasted["TASKS"]):
        assert found(checks.check_backends(None)) == []


@pytest.fixture
def other_is_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["other"], "vendor", "sqlite")
    # Other tests import tasks that name this database.
    monkeypatch.setattr(checks, "declared_tasks", list)


@pytest.mark.usefixtures("other_is_sqlite")
def test_e001_only_databases_that_jobs_go_to_matter() -> None:
    assert found(checks.check_databases(None)) == []


@pytest.mark.usefixtures("other_is_sqlite")
def test_e001_by_a_backend() -> None:
    with override_settings(TASKS={"pg": {**OURS, "OPTIONS": {"database": "other"}}}):
        (message,) = checks.check_databases(None)
    assert message.id == "pgqueue.E001"
    assert "'other' because of TASKS['pg']['OPTIONS']['database']" in message.msg
    assert "sqlite" in message.msg


@pytest.mark.usefixtures("other_is_sqlite")
def test_e001_by_a_router() -> None:
    with override_settings(DATABASE_ROUTERS=[f"{__name__}.Router"]):
        (message,) = checks.check_databases(None)
    assert message.id == "pgqueue.E001"
    assert "'other' because of DATABASE_ROUTERS" in message.msg


@pytest.mark.usefixtures("other_is_sqlite")
def test_e001_by_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = task(database="other")(replaced)
    monkeypatch.setattr(checks, "declared_tasks", lambda: [declared])
    (message,) = checks.check_databases(None)
    assert message.id == "pgqueue.E001"
    assert f"because of the task {declared.module_path}" in message.msg


def test_a_django_without_tasks_and_without_the_package_that_brings_them() -> None:
    code = """
import sys
import django
from django.conf import settings
django.VERSION = (5, 2, 0, "final", 0)
sys.modules["django_tasks"] = None
settings.configure(INSTALLED_APPS=["django_pgqueue"])
django.setup()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": "."},
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("Run: pip install django-tasks")


def test_e007_a_task_whose_path_does_not_lead_back() -> None:
    lost: Task[..., Any] = task(replaced)
    (message,) = checks.check_tasks([])
    assert message.id == "pgqueue.E007"
    assert lost.module_path in message.msg
    assert message.hint == "Put @task above all other decorators of def replaced."
    again = task(replaced)
    assert len(checks.check_tasks([])) == 1
    del lost, again, message
    assert found(checks.check_tasks([])) == []


def test_e008_a_module_that_declares_a_bad_task(app_with_tasks: Any) -> None:
    configs = app_with_tasks("from django_pgqueue import task\nrun = task(lambda x: x)\n")
    (message,) = checks.check_tasks(configs)
    assert message.id == "pgqueue.E008"
    assert f"{configs[0].name}.tasks" in message.msg
    assert "is a lambda" in message.msg


@pytest.mark.parametrize(("line", "found"), [("task(lambda x: x)", "E008"), ("1 / 0", "W002")])
def test_tasks_above_the_line_that_raises_are_fine(app_with_tasks: Any, line: str, found: str) -> None:
    good = "from django_pgqueue import task\n@task\ndef good(): pass\n"
    configs = app_with_tasks(f"import builtins\n{good}builtins.kept = good\n{line}\n")
    try:
        (message,) = checks.check_tasks(configs)
    finally:
        del builtins.kept  # type: ignore[attr-defined]
    assert message.id == f"pgqueue.{found}"


@pytest.mark.parametrize("source", ["import celery_of_somebody_else", "1 / 0", "def ("])
def test_w002_a_module_that_cannot_be_imported(app_with_tasks: Any, source: str) -> None:
    configs = app_with_tasks(source)
    (message,) = checks.check_tasks(configs)
    assert message.id == "pgqueue.W002"
    assert not message.is_serious()
    assert f"{configs[0].name}.tasks" in message.msg


def limited(name: str, **limits: Any) -> Task[..., Any]:
    """Declare a task with limits."""

    def run(key: str) -> None: ...

    run.__name__ = run.__qualname__ = name
    declared: Task[..., Any] = task(**limits)(run)
    return declared


MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (
            {"concurrency": Concurrency(1, name="crm")},
            {"concurrency": Concurrency(2, key="key", name="crm")},
            "concurrency=Concurrency(limit=1",
        ),
        (
            {"concurrency": Concurrency(1, name="crm")},
            {"concurrency": Concurrency(1, name="crm", on_full="cancel_new")},
            "on_full='cancel_new'",
        ),
        (
            {"rate_limit": RateLimit(1, per=MINUTE, name="crm")},
            {"rate_limit": RateLimit(1, per=MINUTE, burst=2, name="crm")},
            "burst=2",
        ),
        (
            {"concurrency": Concurrency(1, name="crm")},
            {"rate_limit": RateLimit(1, per=MINUTE, name="crm")},
            "or rate_limit=RateLimit(limit=1",
        ),
    ],
)
def test_w006_two_tasks_with_different_limits_under_one_name(
    one: dict[str, Any], other: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_paths", list)  # these tasks cannot be imported by their paths
    declared = limited("a", **one), limited("b", **other)
    (message,) = checks.check_tasks([])
    assert found([message]) == ["pgqueue.W006"]
    assert not message.is_serious()
    assert f"{__name__}.a and {__name__}.b declare different limits under the name 'crm'" in message.msg
    assert words in message.msg
    del declared


def test_tasks_that_declare_the_same_limit_may_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_paths", list)
    declared = [
        limited("a", concurrency=Concurrency(2, key="key", name="crm")),
        limited("b", concurrency=Concurrency(2, name="crm")),
        limited(
            "both", concurrency=Concurrency(2, name="both"), rate_limit=RateLimit(1, per=MINUTE, name="both")
        ),
        limited("c", concurrency=3),
        limited("d", rate_limit=RateLimit(1, per=MINUTE)),
    ]
    assert found(checks.check_tasks([])) == []
    del declared


def test_a_module_of_good_tasks(app_with_tasks: Any) -> None:
    configs = app_with_tasks("from django_pgqueue import task\n@task\ndef run(x): ...\n")
    assert found(checks.check_tasks(configs)) == []


def test_only_the_given_apps_are_looked_at(app_with_tasks: Any) -> None:
    app_with_tasks("1 / 0")
    assert found(checks.check_tasks([])) == []
    assert found(checks.check_tasks(None)) == ["pgqueue.W002"]


def test_the_command_passes() -> None:
    call_command("check", fail_level="WARNING")


@pytest.mark.parametrize(("queue", "wrong"), [("mail", []), ("bulk", ["pgqueue.E003"]), (None, [])])
def test_the_queue_of_actions_on_many_jobs_is_one_of_queues(queue: str | None, wrong: list[str]) -> None:
    tasks = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": ["mail"]}}
    with override_settings(TASKS=tasks, PGQUEUE={"BULK_QUEUE": queue}):
        messages = checks.check_backends(None)
    assert found(messages) == wrong
    assert all("QUEUES contains mail" in str(message.hint) for message in messages)
