"""The groups of failures of a span, their points, and their parts."""

from __future__ import annotations

import pytest

from django_pgqueue.monitoring.failures import group, groups, mute, parts
from django_pgqueue.monitoring.spans import DAY, HOUR, MONTH, SPANS, WEEK, TimeSpan
from tests.support.failures import fold, note
from tests.support.sessions import Connection

pytestmark = pytest.mark.django_db(transaction=True)


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


def test_muted_groups_are_listed_by_themselves(one: Connection) -> None:
    note(one, "f")
    note(one, "g")
    fold(one)
    mute("default", ["f"], "ann")
    assert [each.fingerprint for each in groups("default", HOUR)] == ["g"]
    [muted] = groups("default", HOUR, muted=True)
    assert (muted.fingerprint, muted.muted_by) == ("f", "ann")
    assert muted.muted_at is not None


def test_a_group_is_found_also_if_nothing_failed_in_the_span(one: Connection) -> None:
    note(one, "f", "3 days", failed=4)
    fold(one)
    found = group("default", "f", DAY)
    assert found is not None
    assert (found.attempts, found.total_failed, found.traceback) == (0, 4, "Traceback")
    assert [len(group("default", "f", span).points) for span in (HOUR, DAY, WEEK, MONTH)] == [4, 24, 28, 30]  # type: ignore[union-attr]
    assert group("default", "") is None
    assert group("default", "g") is None


def test_the_parts_of_a_group(one: Connection) -> None:
    note(one, failed=2, version="v1")
    note(one, retried=5, failed=0, task_path="a.b", version="v2")
    note(one, queue_name="mail", version="v2")
    fold(one)
    found = parts("default", "f", HOUR)
    assert [len(some) for some in parts("default", "f", HOUR, most=1).values()] == [1, 1, 1]
    assert {by: [(part.name, part.failed, part.retried) for part in some] for by, some in found.items()} == {
        "task": [("a.b", 0, 5), ("tests.app.tasks.noop", 3, 0)],
        "queue": [("default", 2, 5), ("mail", 1, 0)],
        "version": [("v2", 1, 5), ("v1", 2, 0)],
    }
