"""What people write out of habit says what to write instead, and all of it stays an ordinary object."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import celery
import django
import procrastinate
import pytest
from asgiref.sync import async_to_sync
from celery.app.task import Task as CeleryTask
from celery.canvas import Signature
from celery.result import AsyncResult
from celery.schedules import crontab
from django.core.management import load_command_class
from django.template import Context, Engine
from django.utils.module_loading import import_string
from procrastinate.jobs import Job as ProcrastinateJob, JobDeferrer
from procrastinate.tasks import ConfigureTaskOptions, Task as ProcrastinateTask

import django_pgqueue.testing
from django_pgqueue import (
    Batch,
    Concurrency,
    InvalidTask,
    RateLimit,
    Snooze,
    Unique,
    apause,
    chain,
    enqueue,
    task,
)
from django_pgqueue.compat import PACKAGES, DjangoTask, TaskResult
from django_pgqueue.jobs.results import QueueTaskResult
from django_pgqueue.models import Job
from django_pgqueue.models.current import CurrentJob
from django_pgqueue.tasks import misuse
from django_pgqueue.testing import fake_job
from tests.app.tasks import mail
from tests.support.wording import refusals

TASK: Any = mail

FUNCTIONS: list[Any] = [
    task, TASK.using, Unique, Concurrency, RateLimit, Batch, Snooze, django_pgqueue.RetryLater,
    django_pgqueue.schedule, django_pgqueue.pause, django_pgqueue.resume, django_pgqueue.set_limit,
    django_pgqueue.reset_limit,
]  # fmt: skip
#: What the words of a section of misuse.txt are keywords of, or attributes.
CALLED = {function.__qualname__: function for function in FUNCTIONS}
USED: dict[str, Any] = {
    "a task": mail, "a call": mail.bind(1), "a job": Job(), "a batch": Batch(),
    "a result": object.__new__(QueueTaskResult), "django_pgqueue": django_pgqueue,
    "django_pgqueue.testing": django_pgqueue.testing,
}  # fmt: skip

#: Sections of what stands on a command line.
ON_A_LINE = ("pgqueue", "pgqueue schedules")


def answer(owner: str, word: str, value: Any = 1) -> str:
    """Return what the error for a word says."""
    try:
        if owner in CALLED:
            CALLED[owner](**{word: value})
        else:
            getattr(USED[owner], word)
    except (TypeError, AttributeError, ImportError) as error:
        return str(error)
    raise AssertionError(f"{owner} has {word}")


def test_every_word_of_another_queue_names_ours() -> None:
    assert misuse.words().keys() == {*CALLED, *USED, *ON_A_LINE}
    for owner in (*CALLED, *USED):
        for word in misuse.words()[owner]:
            text = answer(owner, word)
            assert re.search(rf" has no ('{word}'|{word}=)\. (Write|Use) .+", text), (owner, word)
            assert not re.search(r"\{\w+\}", text), text


def names_of(parser: ArgumentParser) -> Iterator[str]:
    """Yield the options of a command, and its subcommands with theirs."""
    yield from parser._option_string_actions
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for name, inner in action.choices.items():
                yield from (name, *names_of(inner))


def test_every_word_on_a_command_line_is_a_subcommand_or_an_option_of_ours() -> None:
    commands = ("pgqueue", "runqueueworker")
    known: set[str] = set()
    for name in commands:
        known.update(names_of(load_command_class("django_pgqueue", name).create_parser("manage.py", name)))
    assert {ours for owner in ON_A_LINE for ours in misuse.words()[owner].values()} <= known


SAMPLES: list[tuple[Any, ...]] = [
    ("Task.using", "countdown", 3), ("Task.using", "delay", timedelta(3)),
    ("Task.using", "schedule_in", {"minutes": 3}), ("Task.using", "eta", 5), ("Task.using", "queue", "mail"),
    ("Task.using", "retries", 3), ("Task.using", "rate_limit", 3), ("Task.using", "lock", "a"),
    ("task", "retries", 3), ("task", "max_retries", None), ("task", "bind", True),
    ("task", "autoretry_for", ValueError), ("task", "rate", "10/s"), ("Unique", "by", "order_id"),
    ("Concurrency", "max", 1), ("RateLimit", "period", 60), ("schedule", "minutes", 5),
    ("set_limit", "rate", "5/h"), ("RetryLater", "countdown", 60), ("a task", "delay"), ("a task", "retry"),
    ("a task", "s"), ("a batch", "chord"), ("django_pgqueue", "chord"),
    ("a call", "delay"), ("a job", "get"), ("a job", "state"), ("a batch", "then"), ("a result", "revoke"),
    ("django_pgqueue", "shared_task"), ("django_pgqueue", "get_task_logger"),
    ("django_pgqueue.testing", "drain"),
]  # fmt: skip


def test_what_they_say(wording: Any) -> None:
    assert "\n".join(answer(*sample) for sample in SAMPLES) == wording


def test_a_template_reads_a_task() -> None:
    assert Engine().from_string("{{ task.queue_name }}").render(Context({"task": mail})) == mail.queue_name


def plain(order_id: int) -> None: ...


declare: Any = task
rate: Any = RateLimit
wrong_pause: Any = apause
wrong_chain: Any = chain
wrong_batch: Any = Batch
wrong_enqueue: Any = enqueue


def retry_here() -> None:
    with fake_job() as job:
        job.retry(countdown=30)


MISTAKES: dict[type[Exception], list[Any]] = {
    AttributeError: [lambda: TASK.dealy, lambda: TASK.bind(1).delay()],
    InvalidTask: [lambda: declare(unique=Unique(key="fixed"))(plain)],
    TypeError: [
        lambda: TASK.using(priority=3)(1), lambda: TASK.bind(1)(), lambda: TASK.using(eta=1, queue="x"),
        lambda: TASK.using(color=1), Snooze, lambda: Snooze(until=datetime(2030, 1, 1)),  # noqa: DTZ001
        lambda: async_to_sync(wrong_pause)(queue_name="mail"), lambda: TASK.bind("a secret", eta=5),
        lambda: wrong_chain(mail.bind(1), mail.bind(2)), lambda: wrong_batch(on_complete=mail),
        lambda: wrong_batch([mail.bind(1)]), retry_here, lambda: wrong_enqueue(mail, 1, run_after=60),
    ],
}  # fmt: skip


@pytest.mark.parametrize("error", MISTAKES, ids=["attribute", "task", "type"])
def test_each_mistake_has_its_own_hint(error: type[Exception], wording: Any) -> None:
    assert refusals(error, *MISTAKES[error]) == wording


def test_decorated_functions_keep_their_signature() -> None:
    assert inspect.iscoroutinefunction(apause)
    assert "run_after" in inspect.signature(mail.using).parameters
    assert list(inspect.signature(Concurrency).parameters)[:2] == ["limit", "key"]
    assert copy.copy(Unique(key=())) == pickle.loads(pickle.dumps(Unique(key=())))  # noqa: S301


def test_the_rates_of_celery(wording: Any) -> None:
    rates: list[Any] = ["100/m", "10/s", "5/h", "2/day", 7, ("a", 1)]
    calls = [lambda given=given: declare(rate_limit=given)(plain) for given in rates]
    assert refusals(InvalidTask, *calls, lambda: rate("100/m", per=60)) == wording


def test_options_among_the_arguments(wording: Any) -> None:
    said: list[str] = []
    wrong: list[dict[str, Any]] = [
        {"countdown": 3}, {"priority": 5, "queue_name": "slow"}, {"sync": True}, {"max_retries": 2},
        {"color": "red"},
    ]  # fmt: skip
    calls: list[Any] = [enqueue, type(TASK).enqueue, type(TASK).bind]
    for given in wrong:
        texts = set()
        for call in calls:
            with pytest.raises(TypeError) as caught:
                call(TASK, 1, **given)
            texts.add(str(caught.value))
        said += texts
    assert len(said) == len(wrong), "the same, whatever is called"
    assert "\n".join(said) == wording


def test_other_attributes_of_a_job_are_those_of_python() -> None:
    job: Any = Job(task_path="x")
    with pytest.raises(AttributeError, match=r"^'Job' object has no attribute 'statuss'") as caught:
        _ = job.statuss
    assert (caught.value.name, caught.value.obj) == ("statuss", job)
    assert not hasattr(job, "resolve_expression")
    assert copy.deepcopy(job).task_path == pickle.loads(pickle.dumps(job)).task_path == "x"  # noqa: S301


def test_an_error_in_a_property_of_a_job_is_not_hidden() -> None:
    running = CurrentJob.__new__(CurrentJob)
    with pytest.raises(AttributeError, match="_running"):
        _ = running.batch


def test_names_that_are_imported_by_habit_lead_to_names_that_exist() -> None:
    for name, text in misuse.words()["django_pgqueue"].items():
        ours = text.partition(":")[0].format(word=name)
        if "." not in ours:
            assert ours in django_pgqueue.__all__
        elif not ours.startswith("django.tasks.") or django.VERSION >= (6, 0):
            import_string(ours)
        # While a submodule is imported, Python asks the package for its name.
        assert find_spec(f"django_pgqueue.{name}") is None
    with pytest.raises(ImportError, match=r"has no 'drain'\. Use run_jobs"):
        from django_pgqueue.testing import drain  # type: ignore[attr-defined]  # noqa: F401
    assert set(misuse.words()["django_pgqueue.testing"].values()) <= set(django_pgqueue.testing.__all__)


# -- the words of installed queues


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def options(*given: Any) -> set[str]:
    """The keywords of functions, and the attributes of classes of tasks, which decorators take, too."""
    return {
        name
        for each in given
        for name in (public(each) if isinstance(each, type) else inspect.signature(each).parameters)
        if not isinstance(each, type) or not callable(inspect.getattr_static(each, name))
    } - {"self", "fun", "args", "kwargs", "options", "name"}


CONFIGURE = {*ConfigureTaskOptions.__annotations__}
TYPED = {
    "a task": public(CeleryTask) | public(ProcrastinateTask),
    "a call": public(Signature) - public(dict) | public(JobDeferrer),
    "a job": public(AsyncResult) | public(ProcrastinateJob) | {*ProcrastinateJob.__annotations__},
    "a result": public(AsyncResult),
    "task": options(CeleryTask, procrastinate.App.task, mail.using),
    "Task.using": options(CeleryTask.apply_async, celery.Celery.send_task, task) | CONFIGURE,
    "schedule": options(procrastinate.App.periodic, crontab) | CONFIGURE,
    "RetryLater": options(CeleryTask.retry),
    "django_pgqueue": {name for name in (*celery.__all__, *procrastinate.__all__) if name[0] != "_"},
}


def is_bare(owner: str, word: str) -> bool:
    """Return whether a word ends in an error that names none of ours."""
    if owner in CALLED:
        function = CALLED[owner]
        return word not in inspect.signature(function).parameters and ". Write " not in answer(owner, word)
    is_there = hasattr(type(USED[owner]), word) or word in dir(USED[owner])
    return not is_there and not re.search(r"\. (Write|Use) ", answer(owner, word))


def test_words_of_other_queues_work_or_name_ours_or_were_looked_at() -> None:
    """Who adds a word to ``looked_at.txt`` has decided that Python's own error is enough."""
    text = Path(__file__).with_name("looked_at.txt").read_text()
    listed = {
        owner: {*words.split()} for owner, words in re.findall(r"^\[(.+)\]\n([^\[]*)", text, re.MULTILINE)
    }
    bare = {owner: {word for word in words if is_bare(owner, word)} for owner, words in TYPED.items()}
    assert bare == listed, "give them a hint in tasks/misuse.txt, or add them to looked_at.txt"


def test_all_words_of_django_work() -> None:
    assert {word for word in public(DjangoTask) if is_bare("a task", word)} == set()
    assert {word for word in public(TaskResult) if not hasattr(QueueTaskResult, word)} == set()
    assert PACKAGES
