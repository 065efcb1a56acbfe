"""What people write out of habit says what to write instead, and all of it stays an ordinary object."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.template import Context, Engine
from django.utils.module_loading import import_string

import django_pgqueue.testing
from django_pgqueue import (
    Batch,
    Concurrency,
    InvalidTask,
    RateLimit,
    RetryLater,
    Snooze,
    Unique,
    apause,
    chain,
    enqueue,
    pause,
    schedule,
    set_limit,
    task,
)
from django_pgqueue.models import Job
from django_pgqueue.models.current import CurrentJob
from django_pgqueue.tasks import misuse
from django_pgqueue.testing import fake_job
from tests.app.tasks import mail

TASK: Any = mail


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("delay", "enqueue(mail, ...)"),
        ("apply_async", "enqueue(mail.using(...), ...)"),
        ("si", "enqueue_many(mail.bind(...) for ...)"),
        ("defer_async", "await aenqueue(mail, ...)"),
        ("apply", "mail.call(...)"),
        ("link_error", "enqueue(other.using(after=job), ...)"),
        ("chunks", "chain([mail.bind(...), ...]), or a Batch"),
        ("retry", "raise RetryLater(delay) in the task"),
    ],
)
def test_attributes_of_other_queues(name: str, ours: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(TASK, name)
    assert str(caught.value) == f"The task tests.app.tasks.mail has no {name!r}. Write {ours}."
    assert not hasattr(TASK, name)


def test_other_attributes_and_calls() -> None:
    with pytest.raises(AttributeError, match=r"^'Task' object has no attribute 'dealy'"):
        _ = TASK.dealy
    with pytest.raises(TypeError, match=r"write enqueue\(mail, \.\.\.\)\. To run it now, write mail\.call"):
        TASK.using(priority=3)(1)
    with pytest.raises(TypeError, match=r"write enqueue\(call\)"):
        TASK.bind(1)()
    with pytest.raises(AttributeError, match=r"^A call has no 'delay'\. Write enqueue\(call\)\.$"):
        TASK.bind(1).delay()


def test_copies_and_templates() -> None:
    assert copy.deepcopy(mail.using(priority=3)).priority == 3
    assert pickle.loads(pickle.dumps(mail)) == mail  # noqa: S301
    assert Engine().from_string("{{ task.queue_name }}").render(Context({"task": mail})) == mail.queue_name


def plain(order_id: int) -> None: ...


OPTIONS: Any = task, TASK.using, Unique, Concurrency, RateLimit, schedule, pause, set_limit, RetryLater
declare, using, unique, concurrency, rate, scheduled, paused, limited, later = OPTIONS


@pytest.mark.parametrize(
    ("function", "given", "ours"),
    [
        (using, {"countdown": 3}, "run_after=timedelta(seconds=3)"),
        (using, {"delay": timedelta(3)}, "run_after=datetime.timedelta(days=3)"),
        (using, {"schedule_in": {"minutes": 3}}, "run_after=timedelta(minutes=3)"),
        (using, {"eta": 5}, "run_after=5"),
        (using, {"queue": "mail"}, "queue_name='mail'"),
        (using, {"expires": 60}, "expires_after=60"),
        (using, {"group": 7}, "group_key=7; or batch=..., for jobs that belong together"),
        (using, {"concurrency_key": "a"}, "limit_key='a'"),
        (using, {"lock": "a"}, "limit_key='a'; with @task(concurrency=1)"),
        (using, {"queueing_lock": "a"}, "unique_key='a'"),
        (using, {"retries": 3}, "max_attempts=4; it counts the first attempt"),
        (using, {"rate_limit": 3}, "@task(rate_limit=...): it is declared, not set for one call"),
        (declare, {"retries": 3}, "max_attempts=4; it counts the first attempt"),
        (declare, {"max_retries": None}, "max_attempts=...; it counts the first attempt"),
        (declare, {"queue": "mail"}, "queue_name='mail'"),
        (declare, {"bind": True}, "current_job() in the task"),
        (declare, {"autoretry_for": ValueError}, "retry_on=..."),
        (declare, {"time_limit": 60}, "timeout=60; it is in seconds"),
        (declare, {"rate": "10/s"}, "rate_limit=RateLimit(10, per=1)"),
        (declare, {"lock": "a"}, "concurrency=1"),
        (unique, {"by": "order_id"}, "key='order_id'"),
        (concurrency, {"by": "order_id"}, "key='order_id'"),
        (concurrency, {"max": 1}, "Concurrency(1)"),
        (rate, {"period": 60}, "per=60"),
        (scheduled, {"minutes": 5}, "every=timedelta(minutes=5)"),
        (paused, {"queue_name": "mail"}, "queue='mail'"),
        (limited, {"rate": "5/h"}, "rate_limit=RateLimit(5, per=3600)"),
        (later, {"countdown": 60}, "delay=60"),
    ],
)
def test_keywords_of_other_queues(function: Any, given: dict[str, Any], ours: str) -> None:
    (word,) = given
    with pytest.raises(TypeError) as caught:
        function(**given)
    assert str(caught.value) == f"{function.__qualname__}() has no {word}=. Write {ours}."


def test_several_keywords_and_those_of_nobody() -> None:
    with pytest.raises(TypeError, match=r"has no eta=\. Write run_after=1\. Task\.using\(\) has no queue=\."):
        using(eta=1, queue="x")
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'colour'"):
        using(colour=1)
    with pytest.raises(TypeError, match=r"^Snooze takes a delay"):
        Snooze()


def test_a_keyword_of_an_async_function() -> None:
    assert inspect.iscoroutinefunction(apause)
    wrong: Any = apause
    with pytest.raises(TypeError, match=r"^pause\(\) has no queue_name=\. Write queue='mail'\.$"):
        async_to_sync(wrong)(queue_name="mail")


def test_decorated_functions_keep_their_signature() -> None:
    assert "run_after" in inspect.signature(mail.using).parameters
    assert list(inspect.signature(Concurrency).parameters)[:2] == ["limit", "key"]
    assert copy.copy(Unique(key=())) == pickle.loads(pickle.dumps(Unique(key=())))  # noqa: S301


@pytest.mark.parametrize(
    ("rate", "ours"),
    [
        ("100/m", "RateLimit(100, per=60)"),
        ("10/s", "RateLimit(10, per=1)"),
        ("5/h", "RateLimit(5, per=3600)"),
        ("2/day", "RateLimit(2, per=86400)"),
        (7, "RateLimit(7, per=1)"),
        (("a", 1), "RateLimit(100, per=60)"),
    ],
)
def test_the_rates_of_celery(rate: Any, ours: str) -> None:
    with pytest.raises(InvalidTask) as caught:
        declare(rate_limit=rate)(plain)
    assert str(caught.value) == f"rate_limit must be a RateLimit(...): write {ours}. It is {rate!r}."


def test_a_rate_in_a_rate() -> None:
    with pytest.raises(InvalidTask, match=r"It is '100/m'\. Write RateLimit\(100, per=60\)\.$"):
        rate("100/m", per=60)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (
            {"countdown": 3},
            "'countdown'. {before} enqueue(mail.using(run_after=timedelta(seconds=3)), 1).",
        ),
        (
            {"priority": 5, "queue_name": "slow"},
            "'priority'. {before} enqueue(mail.using(priority=5, queue_name='slow'), 1).",
        ),
        (
            {"sync": True},
            "'sync'. In place of sync=, write call(...), which runs the function here.",
        ),
        (
            {"max_retries": 2},
            "'max_retries'. {before} enqueue(mail.using(max_attempts=3), 1). {remark}",
        ),
        ({"color": "red"}, "'color'"),
    ],
)
def test_options_among_the_arguments(given: dict[str, Any], hint: str) -> None:
    hint = hint.format(
        before="Options go before the arguments:", remark="max_attempts=3: it counts the first attempt."
    )
    calls: list[Any] = [enqueue, type(TASK).enqueue, type(TASK).bind]
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call(TASK, 1, **given)
        assert str(caught.value) == f"tests.app.tasks.mail() got an unexpected keyword argument {hint}"


def test_a_hint_shows_no_texts_of_the_arguments() -> None:
    with pytest.raises(TypeError, match=r"mail\.using\(run_after=5\), \.\.\.\)\.$"):
        TASK.bind("a secret", eta=5)


def test_a_literal_key_and_calls_without_a_list() -> None:
    with pytest.raises(InvalidTask, match=r"write name='fixed', key=\(\)\.$"):
        declare(unique=Unique(key="fixed"))(plain)
    with pytest.raises(TypeError, match=r"Write chain\(\[a, b\]\), not chain\(a, b\)"):
        chain(mail.bind(1), mail.bind(2))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("get", "job.join(), then job.status and job.result"),
        ("wait", "job.join(), then job.status and job.result"),
        ("ready", "job.is_finished"),
        ("successful", "job.status == 'done'"),
        ("state", "job.status"),
        ("revoke", "job.cancel()"),
    ],
)
def test_a_job_is_no_result_of_celery(name: str, ours: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(Job(), name)
    assert str(caught.value) == f"A job has no {name!r}. Write {ours}."


@pytest.mark.django_db
def test_a_result_is_no_result_of_celery() -> None:
    result: Any = mail.enqueue(1)
    with pytest.raises(AttributeError, match=r"^A result has no 'get'\. Write result\.join\(\), then"):
        result.get(timeout=3)
    with pytest.raises(AttributeError, match=r"Write result\.job\.cancel\(\)\.$"):
        result.revoke()
    with pytest.raises(AttributeError, match=r"^'QueueTaskResult' object has no attribute 'gett'"):
        _ = result.gett


def test_other_attributes_of_a_job_are_those_of_python() -> None:
    job: Any = Job(task_path="x")
    with pytest.raises(AttributeError, match=r"^'Job' object has no attribute 'statuss'") as caught:
        _ = job.statuss
    assert (caught.value.name, caught.value.obj) == ("statuss", job)
    assert not hasattr(job, "resolve_expression")
    assert copy.deepcopy(job).task_path == pickle.loads(pickle.dumps(job)).task_path == "x"  # noqa: S301
    assert not set(misuse.words()["a job"]) & {*dir(Job)}


def test_an_error_in_a_property_of_a_job_is_not_hidden() -> None:
    running = CurrentJob.__new__(CurrentJob)
    with pytest.raises(AttributeError, match="_running"):
        _ = running.batch


@pytest.mark.parametrize("name", misuse.words()["django_pgqueue"])
def test_names_that_are_imported_by_habit(name: str) -> None:
    ours = misuse.words()["django_pgqueue"][name].partition(":")[0].format(word=name)
    if "." not in ours:
        assert ours in django_pgqueue.__all__
    elif not ours.startswith("django.tasks.") or django.VERSION >= (6, 0):
        import_string(ours)
    with pytest.raises(ImportError, match=rf"^django_pgqueue has no '{name}'\. Use {ours}"):
        getattr(django_pgqueue, name)
    # While a submodule is imported, Python asks the package for its name.
    assert find_spec(f"django_pgqueue.{name}") is None


def test_no_word_of_another_queue_is_ours() -> None:
    functions = (
        TASK.using, task, Unique, Concurrency, RateLimit, schedule, pause, set_limit, RetryLater,
    )  # fmt: skip
    for function in functions:
        assert not set(misuse.words()[function.__qualname__]) & set(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    ("value", "ours"),
    [("pk", "Unique(key='pk')"), (["pk"], "Unique(key=('pk',))"), (len, "Unique(key=...)")],
)
def test_a_key_in_place_of_unique(value: Any, ours: str) -> None:
    with pytest.raises(InvalidTask, match=re.escape(f"such as {ours}.")):
        mail.using(unique=value)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("then", "enqueue(task.using(after=batch), ...)"),
        ("enqueue", "batch.add([task.bind(...)])"),
        ("wait", "batch.join()"),
    ],
)
def test_attributes_of_a_batch(name: str, ours: str) -> None:
    batch: Any = Batch()
    with pytest.raises(AttributeError) as caught:
        getattr(batch, name)
    assert str(caught.value) == f"A batch has no {name!r}. Write {ours}."
    assert not hasattr(batch, "nothing_like_it")
    assert not set(misuse.words()["a batch"]) & {*dir(Batch)}


def test_options_of_a_batch() -> None:
    with pytest.raises(
        TypeError, match=re.escape("Write enqueue(task.using(after=batch), ...) in the block.")
    ):
        Batch(on_complete=mail)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=re.escape("batch.add(calls)")):
        Batch([mail.bind(1)])  # type: ignore[arg-type]


def test_a_running_job_is_not_retried() -> None:
    with fake_job() as job, pytest.raises(TypeError, match=re.escape("raise RetryLater(delay)")):
        job.retry(countdown=30)


def test_a_number_is_no_time_to_run_after() -> None:
    with pytest.raises(TypeError, match=re.escape("mail.using(run_after=timedelta(seconds=60)), 1)")):
        enqueue(mail, 1, run_after=60)  # type: ignore[call-arg]


def test_names_that_people_look_for_in_the_test_kit() -> None:
    with pytest.raises(ImportError, match=r"has no 'drain'\. Use run_jobs"):
        from django_pgqueue.testing import drain  # type: ignore[attr-defined]  # noqa: F401
    assert set(misuse.words()["django_pgqueue.testing"].values()) <= set(django_pgqueue.testing.__all__)
