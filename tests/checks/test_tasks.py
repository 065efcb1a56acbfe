"""The checks of settings, TASKS, tasks, and fields that refer to rows of the queue."""

from __future__ import annotations

import builtins
import gc
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.core.checks import CheckMessage, run_checks
from django.core.checks.registry import registry
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connections, models
from django.test import override_settings
from django.test.utils import isolate_apps
from django.utils.module_loading import import_string

import django_pgqueue
from django_pgqueue import Concurrency, RateLimit, compat, task
from django_pgqueue.checks import backends, tasks as checks
from django_pgqueue.checks.payloads import check_references
from django_pgqueue.models import Job, JobBatch, Queue, Worker
from django_pgqueue.tasks.task import Task, declared_tasks
from tests.support.wording import lasting, text_of

OURS = {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}
DJANGO_TASKS = compat.DjangoTask.__module__.removesuffix(".base")
DUMMY = {"BACKEND": f"{DJANGO_TASKS}.backends.dummy.DummyBackend"}


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
def only_tasks_of_this_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ignore each task that is there before the test. Those of the test are collected, with their tracebacks:
    no other test should find them.
    """
    before = list(declared_tasks())

    def declared() -> Iterator[Task[..., Any]]:
        return (each for each in declared_tasks() if all(each is not known for known in before))

    monkeypatch.setattr(checks, "declared_tasks", declared)
    yield
    gc.collect()


def found(messages: list[CheckMessage]) -> list[str]:
    """Return the ids of the messages. Each message must have a hint."""
    for message in messages:
        assert message.hint
        assert message.msg.strip()
    return sorted(str(message.id) for message in messages)


@pytest.fixture
def app_with_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Creates an installed app whose `tasks` module has the given source."""
    monkeypatch.syspath_prepend(tmp_path)
    with ExitStack() as stack:

        def make(source: str) -> list[Any]:
            name = f"app_{uuid4().hex}"
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").touch()
            (tmp_path / name / "tasks.py").write_text(source)
            stack.enter_context(override_settings(INSTALLED_APPS=["django_pgqueue", name]))
            return [apps.get_app_config(name)]

        yield make


def test_the_checks_are_registered_and_the_tests_own_settings_pass() -> None:
    with override_settings(TASKS={"default": OURS}):
        assert found(run_checks(tags=[backends.TAG])) == []
    with override_settings(PGQUEUE={"NO": 1}):
        assert found(run_checks(tags=[backends.TAG])) == ["pgqueue.E002", "pgqueue.W001"]


def queue_of(alert: object, queue: str) -> str:
    """Has one parameter too many to receive alerts."""
    return queue


NO_CALLABLES = ["no.such.path", "tests.settings.DATABASES", f"{__name__}.queue_of", "asyncio.sleep"]
BAD_SETTINGS: list[Any] = [
    {"MAX_ATEMPTS": 1}, {"GRACE": -1}, {"BACKOFF_BASE": 7200}, 5,
    {"CONTEXT": ["no.such.tenant"]}, {"CONTEXT": ["tests.app.context_tasks.look"]},
    {"REDACT": "no.such.redact"}, {"REDACT": "tests.app.secret_tasks.NOT_CALLABLE"},
    {"SETUP": "no.such.setup"}, {"SETUP": "tests.settings.DATABASES"}, {"SETUP": "setup"},
    {"BEFORE_ENQUEUE": [print]},
    # Paths are looked at when the settings are valid.
    {"CONTEXT": ["no.such.tenant"], "ALERTS": "no.such.receiver", "GRACEE": 1},
    *(
        {setting: ["builtins.print", path]}
        for setting in ("ALERTS", "BEFORE_ENQUEUE", "AROUND_ATTEMPT")
        for path in NO_CALLABLES
    ),
]  # fmt: skip
GOOD_SETTINGS: list[Any] = [
    {}, {"CONTEXT": ["tests.app.context_tasks.TENANT", "language"]}, {"SETUP": "django.setup"},
    {"SETUP": None}, {"REDACT": "tests.app.secret_tasks.fail"}, {"REDACT": ["password"]},
    {"ALERTS": ["builtins.print"], "BEFORE_ENQUEUE": ["builtins.print"], "AROUND_ATTEMPT": "builtins.print"},
]  # fmt: skip


def test_what_is_wrong_with_settings(wording: Any) -> None:
    said = []
    for given in BAD_SETTINGS:
        with override_settings(PGQUEUE=given):
            said.append(f"{given}\n{text_of(checks.check_settings(None))}")
    for given in GOOD_SETTINGS:
        with override_settings(PGQUEUE=given):
            assert found(checks.check_settings(None)) == []
    assert "\n".join(said) == wording


@pytest.fixture
def django_is_silenced(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """As when the app is ready, with the settings of the moment; undone at the end of the test. No other
    checks than ours and those of tasks run, which take a fifth of a second.
    """
    ours = (DJANGO_TASKS, "django_pgqueue")
    about_tasks = {each for each in registry.registered_checks if each.__module__.startswith(ours)}
    monkeypatch.setattr(registry, "registered_checks", about_tasks)
    return backends.silence_django


#: What TASKS["default"] may be.
BAD_ENTRIES: list[Any] = [
    {"BACKEND": "django_pgqueue.PgQueueBackend"}, {"BACKEND": "django_pgqueue.backends.PgQueueBackend"},
    {"BACKEND": "django_pgqueue.backend.PgQueBackend"}, {"BACKEND": "django_pgqueue.backend"},
    {"BACKEND": "no.such.Backend"}, {"BACKEND": "django.core.mail.send_mail"}, {"BACKEND": None}, {},
    OURS["BACKEND"], {**OURS, "OPTIONS": {"databse": "x"}}, {**OURS, "OPTIONS": {"max_attempt": 5}},
    {**OURS, "OPTIONS": {"color": 1}}, {**OURS, "OPTIONS": {"database": 5}}, {**OURS, "OPTIONS": None},
    {**OURS, "OPTIONS": ["database"]}, {**OURS, "QUEUES": "mail"}, {**OURS, "QUEUES": None},
    {**OURS, "QUEUES": ["q" * 101]},
]  # fmt: skip
BAD_TASKS: list[Any] = [["x"], OURS["BACKEND"], 5, *({"default": entry} for entry in BAD_ENTRIES)]


def test_what_is_wrong_with_entries_of_tasks(django_is_silenced: Callable[[], None], wording: Any) -> None:
    said = []
    for tasks in BAD_TASKS:
        with override_settings(TASKS=tasks):
            django_is_silenced()
            (message,) = [each for each in run_checks() if each.is_serious()]
        said.append(f"{tasks}\n{text_of([message])}")
    assert "\n".join(said) == wording


@pytest.mark.skipif(not compat_is_djangos(), reason="the package is not among the apps of the tests")
def test_djangos_check_is_left_alone_while_it_says_more(django_is_silenced: Callable[[], None]) -> None:
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
for command in ("check", "runqueueworker"):
    try:
        execute_from_command_line(["manage.py", command])
    except SystemExit as end:
        print("ended with", end.code, file=sys.stderr)
sys.exit(1)
"""


def python(code: str) -> str:
    """Run a program, which fails, and return what it says."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr


def test_a_command_shows_what_is_wrong_with_tasks_and_no_traceback() -> None:
    said = python(BROKEN_PROJECT)
    for of_command in said.split("ended with 1\n", 1):
        assert "(pgqueue.E004) TASKS['default']: the BACKEND 'django_pgqueue.PgQueueBackend' ca" in of_command
        assert f'HINT: Use "{OURS["BACKEND"]}".' in of_command
    assert said.count("ended with 1\n") == 2
    assert "Traceback" not in said


def test_a_wrong_path_that_is_met_while_apps_load_names_the_right_one() -> None:
    """Django shows the words of an ImportError only, in the last line of its traceback."""
    with (
        override_settings(TASKS={"default": {"BACKEND": "django_pgqueue.PgQueueBackend"}}),
        pytest.raises(compat.InvalidTaskBackend, match=re.escape(f'"{OURS["BACKEND"]}"')),
    ):
        compat.task_backends["default"]
    assert not hasattr(django_pgqueue, "backends")


def test_e017_an_alias_too_long_for_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = "x" * 43
    for alias, ids in ((longest, []), (f"{longest}x", ["pgqueue.E017"])):
        monkeypatch.setitem(connections.settings, alias, connections.settings["other"])
        with override_settings(TASKS={"default": {**OURS, "OPTIONS": {"database": alias}}}):
            assert found(checks.check_databases(None)) == ids
        del connections[alias]


def test_e032_two_shards_are_one_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings, "again", connections.settings["other"])
    for shards, ids in ((["default", "other"], []), (["default", "other", "again"], ["pgqueue.E032"])):
        with override_settings(PGQUEUE={"SHARDS": shards}):
            assert found(checks.check_databases(None)) == ids
    with override_settings(PGQUEUE={"SHARDS": ["default", "s9"]}):
        assert found(checks.check_databases(None)) == ["pgqueue.E005"]
    del connections["again"]


def test_w020_each_tenant_would_have_a_queue() -> None:
    for names, ids in ((["shop"], []), (["shop", "django_pgqueue"], ["pgqueue.W020"])):
        schemas = {"public": {"APPS": ["django_pgqueue"]}, "default": {"APPS": names}}
        for given in ({"TENANT_APPS": names}, {"TENANTS": schemas}):
            with override_settings(**given):
                assert found(checks.check_databases(None)) == ids


def test_w001_tasks_of_djangos_decorator_go_elsewhere(wording: Any) -> None:
    said = [text_of(checks.check_backends(None))]
    for tasks in ({"default": DUMMY}, {"default": DUMMY, "pg": OURS}):
        with override_settings(TASKS=tasks):
            said.append(text_of(checks.check_backends(None)))
    assert lasting("\n".join(said), django_tasks=DJANGO_TASKS) == wording
    # The lines of the hint can be pasted.
    pasted: dict[str, Any] = {}
    exec(backends.LINES, pasted)  # noqa: S102
    for tasks in (pasted["TASKS"], {"pg": OURS}, {"default": OURS, "other": DUMMY}, {}):
        with override_settings(TASKS=tasks):
            assert found(checks.check_backends(None)) == []


def test_what_is_wrong_with_databases(monkeypatch: pytest.MonkeyPatch, wording: Any) -> None:
    lost = task(database="nowhere")(replaced)
    said = [text_of(checks.check_databases(None))]
    del lost
    with override_settings(TASKS={"default": {**OURS, "OPTIONS": {"database": "nowhere"}}}):
        said.append(text_of(checks.check_databases(None)))
    monkeypatch.setattr(connections["other"], "vendor", "sqlite")
    assert found(checks.check_databases(None)) == [], "no jobs go there"
    with override_settings(TASKS={"pg": {**OURS, "OPTIONS": {"database": "other"}}}):
        said.append(text_of(checks.check_databases(None)))
    with override_settings(DATABASE_ROUTERS=[f"{__name__}.Router"]):
        said.append(text_of(checks.check_databases(None)))
    declared = task(database="other")(replaced)
    said.append(text_of(checks.check_databases(None)))
    assert declared
    assert "\n".join(said) == wording


def test_a_django_without_tasks_and_without_the_package_that_brings_them() -> None:
    said = python("""
import sys
import django
from django.conf import settings
django.VERSION = (5, 2, 0, "final", 0)
sys.modules["django_tasks"] = None
settings.configure(INSTALLED_APPS=["django_pgqueue"])
django.setup()
""")
    assert said.splitlines()[-1].endswith("Run: pip install django-tasks")


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


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("from django_pgqueue import task\nrun = task(lambda x: x)\n", "E008", "is a lambda"),
        ("import celery_of_somebody_else", "W002", "celery_of_somebody_else"),
        ("1 / 0", "W002", "ZeroDivisionError"), ("def (", "W002", "SyntaxError"),
    ],
    ids=["a bad task", "an unknown module", "an error", "no Python"],
)  # fmt: skip
def test_a_broken_module_is_named(app_with_tasks: Any, source: str, code: str, words: str) -> None:
    configs = app_with_tasks(source)
    (message,) = checks.check_tasks(configs)
    assert (message.id, message.is_serious()) == (f"pgqueue.{code}", code == "E008")
    assert f"{configs[0].name}.tasks" in message.msg
    assert words in message.msg


@pytest.mark.parametrize(("line", "found"), [("task(lambda x: x)", "E008"), ("1 / 0", "W002")])
def test_tasks_above_the_line_that_raises_are_fine(app_with_tasks: Any, line: str, found: str) -> None:
    good = "from django_pgqueue import task\n@task\ndef good(): pass\n"
    configs = app_with_tasks(f"import builtins\n{good}builtins.kept = good\n{line}\n")
    try:
        (message,) = checks.check_tasks(configs)
    finally:
        del builtins.kept  # type: ignore[attr-defined]
    assert message.id == f"pgqueue.{found}"


def limited(name: str, **limits: Any) -> Task[..., Any]:
    """Declare a task with limits."""

    def run(key: str) -> None: ...

    run.__name__ = run.__qualname__ = name
    declared: Task[..., Any] = task(**limits)(run)
    return declared


MINUTE = timedelta(minutes=1)


CRM, CRM_RATE = Concurrency(1, name="crm"), RateLimit(1, per=MINUTE, name="crm")
CONTRADICTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"concurrency": CRM}, {"concurrency": Concurrency(2, key="key", name="crm")}),
    ({"concurrency": CRM}, {"concurrency": Concurrency(1, name="crm", on_full="cancel_new")}),
    ({"rate_limit": CRM_RATE}, {"rate_limit": RateLimit(1, per=MINUTE, burst=2, name="crm")}),
    ({"concurrency": CRM}, {"rate_limit": CRM_RATE}),
]


def test_w006_two_tasks_with_different_limits_under_one_name(
    monkeypatch: pytest.MonkeyPatch, wording: Any
) -> None:
    monkeypatch.setattr(checks, "_paths", list)  # these tasks cannot be imported by their paths
    said = []
    for one, other in CONTRADICTIONS:
        declared: Any = limited("a", **one), limited("b", **other)
        said.append(text_of(checks.check_tasks([])))
        del declared
    assert "\n".join(said) == wording


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


@pytest.mark.parametrize("redact", [["key"], ["password"], ["re:x"]])
def test_w016_an_index_of_arguments_that_redact_keeps_empty(
    redact: list[str], monkeypatch: pytest.MonkeyPatch, wording: Any
) -> None:
    monkeypatch.setattr(checks, "_paths", list)
    declared = limited("pack", search=["key"])
    with override_settings(PGQUEUE={"REDACT": redact}):
        assert text_of(checks.check_tasks([])) == wording
    del declared


def test_e031_queues_that_the_setting_lacks(monkeypatch: pytest.MonkeyPatch, wording: Any) -> None:
    monkeypatch.setattr(checks, "_paths", list)
    tasks = {"default": {**OURS, "QUEUES": ["default", "mail"]}, "other": OURS}
    schedules = {
        "nightly": {"task": "tests.app.tasks.mail", "args": [1], "every": 60, "queue_name": "night"},
        "mails": {"task": "tests.app.tasks.mail", "args": [1], "every": 60, "queue_name": "mail"},
    }
    declared = [
        limited("a", queue_name="mial"), limited("b", queue_name="mail"), limited("c", queue_name="any"),
        limited("d", queue_name="any", backend="other"), limited("e", queue_name="any", backend="gone"),
    ]  # fmt: skip
    with override_settings(TASKS=tasks, PGQUEUE={"SCHEDULES": schedules}):
        said = text_of([*checks.check_tasks([]), *checks.check_schedules(None)])
    assert said == wording
    assert found(checks.check_tasks([])) == [], "without QUEUES, any name is fine"
    del declared


@pytest.mark.parametrize("decorator", [task, import_string(f"{DJANGO_TASKS}.task")])
def test_a_task_is_not_declared_while_the_app_is_missing(decorator: Any) -> None:
    with (
        override_settings(INSTALLED_APPS=["tests.app"], TASKS={"default": OURS}),
        pytest.raises(ImproperlyConfigured, match='add "django_pgqueue" to INSTALLED_APPS'),
    ):
        decorator(replaced)


def test_only_the_given_apps_are_looked_at(app_with_tasks: Any) -> None:
    app_with_tasks("1 / 0")
    assert found(checks.check_tasks([])) == []
    assert found(checks.check_tasks(None)) == ["pgqueue.W002"]


def test_the_command_passes() -> None:
    """Also for good tasks, the models of this package, and payloads."""
    call_command("check", fail_level="WARNING")


@pytest.mark.parametrize(("queue", "wrong"), [("mail", []), ("bulk", ["pgqueue.E003"]), (None, [])])
def test_the_queue_of_actions_on_many_jobs_is_one_of_queues(queue: str | None, wrong: list[str]) -> None:
    tasks = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": ["mail"]}}
    with override_settings(TASKS=tasks, PGQUEUE={"BULK_QUEUE": queue}):
        messages = checks.check_backends(None)
    assert found(messages) == wrong
    assert all("QUEUES contains mail" in str(message.hint) for message in messages)


# -- fields of a project that refer to rows of the queue


FREE: dict[str, Any] = {"on_delete": models.DO_NOTHING, "db_constraint": False, "related_name": "+"}
BOUND: dict[str, Any] = {**FREE, "db_constraint": True}
RULED: dict[str, Any] = {**FREE, "on_delete": models.SET_NULL, "null": True}


def problems(
    monkeypatch: pytest.MonkeyPatch, make: Any, bases: tuple[Any, ...] = (models.Model,)
) -> list[Any]:
    """Return what the check finds in a model with one field, or without one, and with these bases."""
    with isolate_apps("tests.app", "django_pgqueue"):
        body: dict[str, Any] = {"__module__": __name__, "Meta": type("Meta", (), {"app_label": "app"})}
        if make is not None:
            body["job"] = make()
        model = type("Export", bases, body)
        monkeypatch.setattr(apps, "get_models", lambda *args, **kwargs: [model])
        return list(check_references(None))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: models.ForeignKey(Job, **BOUND), "E025"),
        (lambda: models.ForeignKey(Job, models.CASCADE, related_name="+"), "E025"),
        (lambda: models.OneToOneField(Job, **BOUND), "E025"),
        (lambda: models.ManyToManyField(Job, related_name="+"), "E025"),
        (lambda: models.ForeignKey(Job, **RULED), "W012"),
        (lambda: models.ForeignKey(JobBatch, **BOUND), "W012"),
        (lambda: models.ForeignKey(Worker, **RULED), "W012"),
        (lambda: models.ForeignKey(Job, **FREE), None),
        (lambda: models.OneToOneField(Job, **FREE), None),
        (lambda: models.ManyToManyField(Job, db_constraint=False, related_name="+"), None),
        (lambda: models.ForeignKey(JobBatch, **FREE), None),
        (lambda: models.ForeignKey(Queue, models.CASCADE, related_name="+"), None),
    ],
)
def test_a_reference(monkeypatch: pytest.MonkeyPatch, make: Any, expected: str | None) -> None:
    found = problems(monkeypatch, make)
    assert [message.id for message in found] == ([f"pgqueue.{expected}"] if expected else [])
    assert all(message.msg.startswith("app.Export.job ") for message in found)
    assert all("db_constraint=False" in message.hint for message in found)


def test_a_model_that_inherits_from_job_is_told_of_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = problems(monkeypatch, None, (Job,))
    assert (found.id, "JobPayload" in found.hint) == ("pgqueue.E025", True)
