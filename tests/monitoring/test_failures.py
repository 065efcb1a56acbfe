"""Which attempts are noted as failures, how notes become groups, and what is shown of these."""

from __future__ import annotations

from typing import Any

import pytest

from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.maintenance.rounds import sweep
from django_pgqueue.models import FailureCount, FailureGroup, FailureNote, Job
from django_pgqueue.monitoring.failures import group, groups, mute, parts
from django_pgqueue.monitoring.spans import DAY, HOUR, MONTH, SPANS, WEEK, TimeSpan
from django_pgqueue.postgres.session import connect as connect_session
from django_pgqueue.worker.executor.errors import fingerprint
from tests.support.figures import fold, forget, note
from tests.support.jobs import add, cancel, claim, finish
from tests.support.sessions import Connection

pytestmark = pytest.mark.django_db

NOOP = "tests.app.tasks.noop"
ERROR = '{"class": "app.Broken", "message": "no", "traceback": "T", "version": "v1"}'


def running(one: Connection, count: int = 1, **options: Any) -> list[int]:
    jobs = add(one, count, **options)
    assert [row.id for row in claim(one, count)] == jobs
    return jobs


def test_each_failed_attempt_is_noted_with_its_report(one: Connection) -> None:
    jobs = running(one, 8)
    cancel(one, jobs[3:4])
    finish(one, jobs[:2], "failed", error=ERROR, fingerprint="f")
    finish(one, jobs[2:4], "retry", error=ERROR, fingerprint="f")
    finish(one, jobs[4:5], "failed", error=ERROR, fingerprint="f", lease=2)
    for place, kind in ((5, "done"), (6, "snooze"), (7, "cancelled")):
        finish(one, jobs[place : place + 1], kind)
    assert fold(one) == 2, "one for each report"
    found = FailureGroup.objects.get()
    assert (found.failed, found.retried, found.sample_job) == (2, 2, jobs[3])
    assert (found.error_class, found.message, found.traceback) == ("app.Broken", "no", "T")
    assert (found.tasks, found.versions) == ([NOOP], ["v1"])
    counts = {row.span: (row.failed, row.retried, row.version) for row in FailureCount.objects.all()}
    assert counts == dict.fromkeys(["quarter", "hour", "day"], (2, 2, "v1"))
    assert fold(one) == 0


@pytest.mark.parametrize("kind", ["failed", "retry"])
@pytest.mark.parametrize("error", [None, '{"class": "app.Broken"}', '"text"'])
def test_a_failure_without_a_fingerprint_gets_one(one: Connection, kind: str, error: str | None) -> None:
    """So it is for workers in other languages, and for lost workers."""
    jobs = running(one, 2)
    for pk in jobs:
        one.execute(
            "CALL _pgqueue_finish_one(%s, 1, %s, p_error => %s, p_started_ago => 2)", [pk, kind, error]
        )
    [known] = {job.error_fingerprint for job in Job.objects.all()}
    assert len(known) == 40
    fold(one)
    found = FailureGroup.objects.get(pk=known)
    assert found.failed + found.retried == 2
    assert found.error_class == ("app.Broken" if error and "class" in error else "")


def test_python_and_sql_agree_on_such_fingerprints(one: Connection) -> None:
    error = '{"class": "django_pgqueue.exceptions.TaskTimeout"}'
    [(found,)] = one.execute("SELECT _pgqueue_fingerprint(%s, %s)", [NOOP, error]).fetchall()
    assert found == fingerprint(TaskTimeout("after 3 s"), NOOP)


@pytest.mark.django_db(transaction=True)
def test_jobs_of_a_lost_worker_are_a_group(one: Connection) -> None:
    running(one, 1, on_lost="fail")
    session = connect_session("default")
    sweep(session)
    sweep(session)
    session.close()
    found = FailureGroup.objects.get()
    assert (found.error_class, found.failed) == ("django_pgqueue.exceptions.WorkerLost", 1)
    assert not FailureNote.objects.exists()


def test_a_fingerprint_for_each_job_fills_nothing(one: Connection) -> None:
    note(one, "often", failed=5)
    for number in range(9):
        note(one, f"once{number}")
    assert fold(one, most=3) == 10
    assert set(FailureGroup.objects.values_list("pk", flat=True)) == {"often", "once8", "once7"}
    for number in range(9):
        note(one, f"more{number}")
    fold(one, most=3)
    assert FailureGroup.objects.count() == 6
    forget(one, groups=3)
    assert set(FailureGroup.objects.values_list("pk", flat=True)) == {"more8", "more7", "more6"}
    assert FailureCount.objects.filter(span="day").count() == 3


def test_what_is_kept(one: Connection) -> None:
    for ago in ("3 days", "33 days"):
        note(one, "f", ago)
    note(one, "old", "91 days")
    fold(one)
    for _ in range(2):
        forget(one)
    counts = FailureCount.objects.values_list("fingerprint", "span")
    assert sorted(counts) == [("f", "day"), ("f", "day"), ("f", "hour")]
    assert FailureGroup.objects.get().failed == 2


@pytest.mark.parametrize(
    ("ago", "more", "muted"),
    [
        ("0", {}, True), ("0", {"version": ""}, True), ("0", {"task_path": "another.task"}, False),
        ("0", {"version": "v2"}, False), ("-25 hours", {}, False),
    ],
    ids=["same", "unknown version", "task", "version", "a day later"],
)  # fmt: skip
def test_a_mute_ends_with_a_change(one: Connection, ago: str, more: dict[str, str], muted: bool) -> None:
    note(one, version="v1")
    fold(one)
    assert (mute("default", "f", "ann"), mute("default", "f", "bob")) == (True, False)
    assert FailureGroup.objects.get().muted_by == "ann"
    FailureGroup.objects.update(is_news=False)
    note(one, "f", ago, **{"version": "v1", **more})
    fold(one)
    after = FailureGroup.objects.get()
    assert (after.failed, after.muted_at is not None, after.muted_by) == (2, muted, "ann" if muted else "")
    assert after.is_news is not muted
    assert mute("default", "f", None) == muted


def test_versions_and_tasks_are_bounded(one: Connection) -> None:
    for number in range(120):
        note(one, task_path=f"task{number}", version=f"v{number}")
        fold(one)
    found = FailureGroup.objects.get()
    assert (len(found.tasks), found.tasks[0]) == (100, "task0")
    assert (len(found.versions), found.versions[0]) == (50, "v119")
    assert [len(some) for some in parts("default", "f", HOUR, most=1).values()] == [1, 1, 1]


# -- the groups of a span, and their points


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
def test_the_groups_of_a_span_and_their_points(one: Connection, span: TimeSpan) -> None:
    note(one, "f", failed=2, retried=3, version="v1")
    note(one, "f", str(span.length * 0.6), task_path="mail.tasks.send", queue_name="mail")
    note(one, "g", job_id=7, version="v2", error_class="app.Gone")
    note(one, "long ago", str(2.5 * span.length))
    fold(one)
    [f, g] = groups("default", span)
    assert (f.fingerprint, f.failed, f.retried, f.attempts) == ("f", 3, 3, 6)
    assert (g.name, g.attempts, g.sample_job, g.versions, g.traceback) == ("Gone", 1, 7, ["v2"], "")
    assert sorted(point.attempts for point in f.points if point.attempts) == [1, 5]
    assert len({len(each.points) for each in (f, g)}) == 1
    assert f.points == sorted(f.points, key=lambda point: point.start)
    assert [each.fingerprint for each in groups("default", span, queue="mail")] == ["f"]
    assert [each.attempts for each in groups("default", span, task="mail.tasks.send")] == [1]
    assert len(groups("default", span, most=1)) == 1


def test_a_group_is_found_also_if_nothing_failed_in_the_span(one: Connection) -> None:
    note(one, "f", "3 days", failed=4)
    fold(one)
    found = group("default", "f", DAY)
    assert found is not None
    assert (found.attempts, found.total_failed, found.traceback) == (0, 4, "Traceback")
    assert [len(group("default", "f", span).points) for span in (HOUR, DAY, WEEK, MONTH)] == [4, 24, 28, 30]  # type: ignore[union-attr]
    assert group("default", "") is None
    assert group("default", "g") is None
