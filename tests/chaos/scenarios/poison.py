"""Poison: jobs that are wrong in themselves, among others that are not."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.db import Error

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import FailureGroup, FailureNote, Job
from tests.app import poison_tasks as tasks
from tests.support.jobs import finish, register, sql, sql_claim, unregister
from tests.support.sessions import Connection, open_raw
from tests.support.waiting import until

from ..harness.scenario import Scenario
from ..harness.stage import PATIENCE, Stage

MOST_MEMORY = 1200.0
"""Mebibytes that a process may need at most for a result or an error of 50 MB, with four threads."""
MOST_ERROR = 64 * 2**10
"""Bytes of an error that are stored: twice MAX_ERROR_BYTES, since some characters are escaped."""
MOST_LOG = 70 * 2**10
"""Bytes that the worker writes to its log for a failure."""
MANY = 500
"""Jobs that fail at once, with long tracebacks."""
FLOOD = 10_000
"""Failures that are reported at once, with long tracebacks."""
REPORTERS = 4
"""Sessions that report them."""

DEEP = json.loads("[" * 190 + "]" * 190)
VALUES: list[Any] = [
    None, True, 0, -1, 2**63, 10**4000, 1.5, -0.0, 1e22, 5e-324, "", "é😀\u2028\ufffe", "\\u0000", "'; --",
    [], {}, [[]], DEEP, {"": {"": ""}}, {"a b": [None], "__proto__": 1, "self": 2, "%s": "{}"},
    "x" * (2**20 - 100), list(range(50_000)), {str(number): number for number in range(5_000)},
]  # fmt: skip
"""Arguments that are JSON."""
SQL_REFUSES = [
    ("args", "1"), ("args", "null"), ("args", '{"a": 1}'), ("kwargs", "[1]"), ("kwargs", "null"),
    ("args", '["\\u0000"]'), ("args", '["\\ud800"]'), ("args", "[NaN]"), ("args", "["),
    ("args", json.dumps(["x" * 2**20])),
]  # fmt: skip
SQL_TAKES: list[tuple[str, str, Any]] = [
    ("args", '[{"a": 1, "a": 2}]', [[{"a": 2}], {}]),
    ("kwargs", '{"": 1, "a b": [], "class": {}}', [[], {"": 1, "a b": [], "class": {}}]),
    ("args", "[1e300, 1.50, -0]", [[10**300, 1.5, 0], {}]),
    ("args", "[1e5000]", None),  # Python reads no number of more than 4,300 digits
]
"""Arguments, and the result of a task that returns them, or None if it cannot be called with them."""


def odd_arguments(stage: Stage) -> None:
    """Enqueue arguments of every shape: they arrive as they are, or are refused. What Python refuses:
    `tests/test_encoding.py`.
    """
    jobs = {enqueue(tasks.echo, value).pk: [[value], {}] for value in VALUES}
    jobs |= {enqueue(tasks.echo, value=value).pk: [[], {"value": value}] for value in VALUES[:-3]}
    for column, text, result in SQL_TAKES:
        jobs[by_sql("echo", column, text)] = result
    for column, text in SQL_REFUSES:
        try:
            by_sql("echo", column, text)
        except Error as error:
            said = str(error)
        else:
            said = "it was enqueued"
        assert re.match("pgqueue: |invalid input syntax|unsupported Unicode", said), f"{text[:80]}: {said}"
    for job in over(jobs):
        expected = jobs[job.pk]
        if expected is None or len(json.dumps(expected)) > 2**20:  # a result may be too long
            assert (job.status, job.attempts) == ("failed", 1), job
        else:
            assert (job.status, job.attempts) == ("done", 1), (job.pk, job.errors)
            assert job.result == expected, f"{str(expected)[:100]} became {str(job.result)[:100]}"


def other_code(stage: Stage) -> None:
    """Enqueue calls of another release: with another signature, and of a task that is no longer there."""
    calls = [("args", "[]"), ("args", "[1, 2]"), ("kwargs", '{"order": 1, "currency": "EUR", "tax": 1}')]
    changed = [by_sql("changed", *call) for call in calls]
    removed = by_sql("removed_in_this_release", "args", "[]")
    for job in over(changed):
        assert (job.status, job.attempts) == ("failed", 1), job
        assert job.errors[0]["class"] == "builtins.TypeError", job.errors
    until(lambda: Job.objects.get(pk=removed).waiting_reason, seconds=PATIENCE, what="the task is unknown")
    job = Job.objects.get(pk=removed)
    assert (job.status, job.attempts) == ("pending", 0), job
    assert "removed_in_this_release" in job.waiting_reason
    assert Job.objects.filter(pk=removed).cancel() == 1


def huge(stage: Stage) -> None:
    """Return and raise 50 MB. The process lives, its memory is bounded, and so is what it stores and logs."""
    pids = stage.at_work()
    logged = log_size(stage)
    results = [enqueue(tasks.give, kind).pk for kind in tasks.RESULTS]
    failures = [enqueue(tasks.fail, kind).pk for kind in tasks.FAILURES]
    for job in over(results):
        assert (job.status, job.attempts, job.result) == ("failed", 1, None), job
        assert job.errors[0]["class"] == "django_pgqueue.exceptions.InvalidJSON", job.errors
    for job in over(failures):
        assert (job.status, job.attempts, len(job.errors)) == ("failed", 1, 1), job
        sizes = [len(json.dumps(error)) for error in job.errors]
        assert max(sizes) < MOST_ERROR, f"{job.args}: errors of {sizes} bytes"
    assert stage.at_work() == pids, "a process was replaced"
    peaks = [peak_mebibytes(pid) for pid in pids]
    assert max(peaks) < MOST_MEMORY, f"processes have needed {peaks} MiB"
    each = (log_size(stage) - logged) / (len(failures) + len(results))
    assert each < MOST_LOG, f"the log has {each:,.0f} bytes for each failure"
    print(f"huge results and errors: at most {max(peaks):.0f} MiB, {each:,.0f} bytes of log for each")


def many_failures(stage: Stage) -> None:
    """Let hundreds of jobs fail as fast as they can, with long tracebacks. Other jobs run, too."""
    logged = log_size(stage)
    began = time.monotonic()
    before = len(stage.accounts().runs)
    jobs = enqueue_many(tasks.fail_deeply.bind(number) for number in range(MANY)).ids
    failed = Job.objects.filter(pk__in=jobs, status="failed", attempts=1)
    until(lambda: failed.count() == MANY, seconds=PATIENCE, what="all have failed")
    seconds = time.monotonic() - began
    others = len(stage.accounts().runs) - before
    # All of them may have been behind these failures, which were enqueued at once.
    until(lambda: len(stage.accounts().runs) > before, seconds=PATIENCE, what="other jobs run")
    places = set(failed.values_list("error_fingerprint", flat=True))
    assert len(places) == 1, "failures of one place are one group"
    groups = FailureGroup.objects.filter(fingerprint__in=places)
    until(groups.count, seconds=PATIENCE, what="they are counted")
    each = (log_size(stage) - logged) / MANY
    assert each < MOST_LOG, f"the log has {each:,.0f} bytes for each failure"
    print(
        f"{MANY / seconds:,.0f} failures in a second, {each:,.0f} bytes of log for each,"
        f" and {others / seconds:.0f} other jobs in a second beside them"
    )


def flood(stage: Stage) -> None:
    """Report failures with long tracebacks as fast as the server takes them, without a process of Python that
    formats each. All failures are counted, and other jobs run.
    """
    (sample,) = over([enqueue(tasks.fail_deeply, 0).pk])
    error = json.dumps({name: sample.errors[0][name] for name in ("class", "message", "traceback")})
    group = FailureGroup.objects.filter(fingerprint=sample.error_fingerprint)
    until(lambda: not FailureNote.objects.exists(), seconds=PATIENCE, what="those before are counted")
    counted = group.get().failed
    before = len(stage.accounts().runs)
    with ExitStack() as stack:
        sessions = [stack.enter_context(open_raw()) for _ in range(REPORTERS)]
        worker = register(sessions[0], "flood")
        claims = _claimed_at_once(sessions[0], worker)

        def report(session: Connection, share: list[list[Any]]) -> int:
            more = {"error": error, "fingerprint": sample.error_fingerprint, "started": time.monotonic()}
            return sum(
                len(finish(session, [job.id for job in jobs], "failed", lease=jobs[0].lease, **more))
                for jobs in share
            )

        began = time.monotonic()
        with ThreadPoolExecutor(REPORTERS) as pool:
            shares = [claims[place::REPORTERS] for place in range(REPORTERS)]
            accepted = sum(pool.map(report, sessions, shares))
        seconds = time.monotonic() - began
        assert unregister(sessions[0], worker)
    ids = [job.id for jobs in claims for job in jobs]
    assert accepted == Job.objects.filter(pk__in=ids, status="failed", attempts=1).count() == FLOOD
    until(lambda: group.get().failed == counted + FLOOD, seconds=PATIENCE, what="all failures are counted")
    until(lambda: len(stage.accounts().runs) > before, seconds=PATIENCE, what="other jobs run")
    print(f"{FLOOD / seconds:,.0f} reports of failures in a second, with {len(error):,} bytes each")


def _claimed_at_once(session: Connection, worker: int) -> list[list[Any]]:
    """Enqueue jobs, and claim them in the same transaction, before another worker sees them."""
    with session.transaction():
        session.execute(
            "SELECT pgqueue_enqueue('go.Import', queue_name => 'flood', max_attempts => 1)"
            " FROM generate_series(1, %s)", [FLOOD],
        )  # fmt: skip
        return [sql_claim(session, worker, 100, ["flood"]) for _ in range(FLOOD // 100)]


def by_sql(name: str, column: str, text: str) -> int:
    """Enqueue a call as somebody does who writes SQL. Return the id of the job."""
    path = f"tests.app.poison_tasks.{name}"
    return int(sql(f"SELECT pgqueue_enqueue(%s, {column} => %s::jsonb)", path, text))


def over(pks: Any) -> list[Job]:
    """Wait until these jobs have finished, and return them."""
    found = Job.objects.filter(pk__in=list(pks), finished_at__isnull=False)
    until(lambda: found.count() == len(pks), seconds=PATIENCE, what="the poisonous jobs have finished")
    return list(found)


def peak_mebibytes(pid: int) -> float:
    """Return the peak memory of a process so far."""
    (line,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(line) / 2**10


def log_size(stage: Stage) -> int:
    """Return how much the commands have logged."""
    return sum(len(command.log) for command in stage.commands)


SCENARIOS = [
    Scenario(
        name="poison",
        faults=(odd_arguments, other_code, huge, many_failures, flood),
        commands=1,
        backlog=100_000,  # the poison waits, too, and others are to come all the time
    )
]
