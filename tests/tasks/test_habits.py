"""Every public word of other queues, tried on ours: it works, its error names our word, or it is on a list.

The words come from the installed packages (the dependency group `peers`), and for queues that are not
installed from their documentation. ``looked_at.txt`` has those that nobody types: who adds one has decided
that Python's own error is enough. Others get a hint in ``django_pgqueue/tasks/misuse.txt``.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import celery
import procrastinate
from celery.app.task import Task as CeleryTask
from celery.canvas import Signature
from celery.result import AsyncResult
from celery.schedules import crontab
from procrastinate.jobs import Job as ProcrastinateJob
from procrastinate.jobs import JobDeferrer
from procrastinate.tasks import ConfigureTaskOptions
from procrastinate.tasks import Task as ProcrastinateTask

import django_pgqueue
from django_pgqueue import RetryLater, schedule, task
from django_pgqueue.compat import PACKAGES, DjangoTask, TaskResult
from django_pgqueue.jobs.results import QueueTaskResult
from django_pgqueue.models import Job
from tests.app.tasks import mail

LOOKED_AT = Path(__file__).with_name("looked_at.txt")


# ----------------------------------------------------------------------------
# The words of the others.


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def attributes(cls: type) -> set[str]:
    """The options of a class of tasks, which the decorator takes, too."""
    return {name for name in public(cls) if not callable(inspect.getattr_static(cls, name))}


def names(module: Any) -> set[str]:
    return {name for name in module.__all__ if len(name) > 1 and not name.startswith("_")}


def keywords(function: Any) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = {each.name for each in parameters if each.kind in kinds}
    return {name for name in names - {"self", "fun"} if not name.startswith("_")}


def source(module: str) -> ast.Module:
    """Read a module that cannot be imported, because its app is not installed."""
    package, _, rest = module.partition(".")
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).with_name(f"{rest}.py").read_text())


def members(module: str, name: str) -> set[str]:
    """The fields and methods of a class."""
    (found,) = [each for each in source(module).body if isinstance(each, ast.ClassDef) and each.name == name]
    return {each for each in _defined(found) if not each.startswith("_")}


def _defined(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield each.name
        elif isinstance(each, ast.AnnAssign):
            yield ast.unparse(each.target)
        elif isinstance(each, ast.Assign):
            yield from (target.id for target in each.targets if isinstance(target, ast.Name))


def popped(module: str, name: str) -> set[str]:
    """The options of a function of django-q2: what it takes out of its ``**kwargs``."""
    (found,) = [
        each for each in source(module).body if isinstance(each, ast.FunctionDef) and each.name == name
    ]
    text = ast.unparse(found)
    listed = re.search(r"opt_keys = \((.*?)\)", text)
    return {*re.findall(r"\.pop\('(\w+)'", text), *re.findall(r"'(\w+)'", listed[1] if listed else "")}


DRAMATIQ_OPTIONS = """
    actor_name max_age max_backoff max_retries min_backoff notify_shutdown on_failure on_retry_exhausted
    on_success pipe_ignore pipe_target priority queue_name result_ttl retry_when store_results throws
    time_limit
"""
DRAMATIQ = """
    actor_name broker fn logger message message_with_options options priority queue_name send
    send_with_options asdict copy encode get_result pipe
"""
HUEY_OPTIONS = "context expires expires_time name priority retries retry_delay retry_delay eta delay"
HUEY = "call_local is_revoked map restore revoke s schedule task_class then error retries id"
HUEY_RESULT = "get get_raw_result id is_ready is_revoked reschedule reset restore revoke task"
RQ_OPTIONS = """
    at_front connection depends_on description failure_ttl job_id job_timeout meta on_failure on_stopped
    on_success queue repeat result_ttl retry timeout ttl
"""
RQ = """
    args cancel cleanup created_at delete dependency description ended_at enqueued_at exc_info func func_name
    get_id get_meta get_position get_status id is_canceled is_deferred is_failed is_finished is_queued
    is_scheduled is_started is_stopped kwargs last_heartbeat latest_result meta origin perform refresh requeue
    result results result_ttl retries_left return_value save save_meta started_at timeout ttl worker_name
"""

#: What is used in the same way: an attribute of what they return, or a keyword of what they offer.
WORDS: dict[str, set[str]] = {
    "Task": {
        *public(CeleryTask), *public(ProcrastinateTask), *public(DjangoTask), *DRAMATIQ.split(),
        *HUEY.split(), "delay", "delay_on_commit", "apply_async_on_commit",
    },
    "BoundTask": {*public(Signature) - public(dict), *public(JobDeferrer), *HUEY.split()},
    "Job": {
        *public(AsyncResult), *public(ProcrastinateJob), *ProcrastinateJob.__annotations__,
        *public(TaskResult), *members("django_q.models", "Task"), *members("django_q.tasks", "AsyncTask"),
        *members("django_tasks_db.models", "DBTaskResult"), *HUEY_RESULT.split(), *RQ.split(),
    },
    "QueueTaskResult": {*public(AsyncResult), *public(TaskResult), *HUEY_RESULT.split()},
    "task()": {
        *attributes(CeleryTask), *keywords(procrastinate.App.task), *keywords(mail.using),
        *DRAMATIQ_OPTIONS.split(), *HUEY_OPTIONS.split(), *RQ_OPTIONS.split(),
        "bind", "autoretry_for", "retry_backoff", "retry_backoff_max", "retry_jitter", "retry_kwargs",
        "dont_autoretry_for", "queue", "base", "pydantic",
    },
    "using()": {
        *keywords(CeleryTask.apply_async), *keywords(celery.Celery.send_task),
        *ConfigureTaskOptions.__annotations__, *popped("django_q.tasks", "async_task"), *keywords(task),
        *DRAMATIQ_OPTIONS.split(),
        *HUEY_OPTIONS.split(), *RQ_OPTIONS.split(), "queue", "exchange", "routing_key", "retry_policy",
        "serializer", "compression", "headers", "ignore_result",
    },
    "schedule()": {
        *keywords(procrastinate.App.periodic), *ConfigureTaskOptions.__annotations__,
        *popped("django_q.tasks", "schedule"), *members("django_q.models", "Schedule"),
        *keywords(crontab), "run_every", "interval", "seconds",
    },
    "RetryLater()": keywords(CeleryTask.retry),
    "import": {
        *names(celery), *names(procrastinate), *"actor", "AsyncResult",
        "async_task", "cron", "crontab", "db_task",
        "db_periodic_task", "fetch", "get_current_job", "get_result", "job", "periodic_task", "result",
        "get_task_logger",
    },
}  # fmt: skip
OURS: dict[str, Any] = {
    "Task": mail,
    "BoundTask": mail.bind(1),
    "Job": Job(),
    "QueueTaskResult": object.__new__(QueueTaskResult),
    "task()": task,
    "using()": mail.using,
    "schedule()": schedule,
    "RetryLater()": RetryLater,
    "import": django_pgqueue,
}


# ----------------------------------------------------------------------------
# What ours say.


def is_bare(ours: Any, kind: str, word: str) -> bool:
    """Return whether a word ends in an error that names none of ours."""
    try:
        if kind.endswith("()"):
            if word not in inspect.signature(ours).parameters:
                ours(**{word: 1})
        elif not hasattr(type(ours), word):
            getattr(ours, word)
    except (AttributeError, ImportError, TypeError) as error:
        return not re.search(r"\. (Write|Use) ", str(error))
    return False


def test_words_of_other_queues_work_or_name_ours_or_were_looked_at() -> None:
    tried = {f"{kind} {word}" for kind, words in WORDS.items() for word in words}
    bare = {
        f"{kind} {word}" for kind, words in WORDS.items() for word in words if is_bare(OURS[kind], kind, word)
    }
    listed = LOOKED_AT.read_text().splitlines()
    assert listed == sorted(set(listed)), "one name per line, sorted"
    assert bare <= set(listed), "give them a hint in tasks/misuse.txt, or add them to looked_at.txt"
    assert set(listed) & tried <= bare, "these have a hint now: remove them from looked_at.txt"


def test_all_words_of_django_work() -> None:
    """Except those that only its own decorator knows."""
    assert {word for word in public(DjangoTask) if is_bare(mail, "Task", word)} == set()
    assert {word for word in public(TaskResult) if not hasattr(QueueTaskResult, word)} == set()
    assert PACKAGES
