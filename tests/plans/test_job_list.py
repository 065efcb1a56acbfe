"""What the list of jobs reads, whatever is chosen or searched: a window of the jobs, and as little for its
counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.test import RequestFactory
from pytest_django import DjangoDbBlocker

from django_pgqueue.admin.jobs import filters, search
from django_pgqueue.admin.lists import KeysetChangeList
from django_pgqueue.models import Job
from django_pgqueue.monitoring import states
from tests.support.plans import fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import HISTORY, LIVE

pytestmark = pytest.mark.django_db

MANY, RUNNING, WINDOW, PAGE = 10_000, 1_000, 300, 100
NOW = "clock_timestamp()"
#: Two scans of the window, the rows of the page twice, and a row of each leaf and queue.
MOST = 2 * WINDOW + 2 * PAGE + 60


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Live jobs in each state, a history on two shelves, and failed jobs of two queues."""
    with django_db_blocker.unblock():
        raw = open_raw()
    over = {
        "finished_at": f"{NOW} - n * interval '1 s'",
        "worker": "n % 5000",
        "kwargs": "jsonb_build_object('n', n)",
    }
    with raw:
        raw.execute("TRUNCATE pgqueue_job")  # other tests may have left dead rows on other shelves
        for shelf, status in ((1, "done"), (2, "done"), (9, "failed")):
            table = "pgqueue_job_kept" if shelf == 9 else f"pgqueue_job_past_{shelf}"
            fill(raw, table, MANY, analyze=False, shelf=str(shelf), status=f"'{status}'",
                 queue_name="'q' || n % 2", **over)  # fmt: skip
        fill(raw, LIVE, MANY, analyze=False, status="CASE n % 9 WHEN 0 THEN 'retry' ELSE 'pending' END")
        fill(raw, LIVE, RUNNING, analyze=False, status="'running'", worker="n % 10", last_attempted_at=NOW)
        fill(raw, LIVE, MANY, analyze=False, status="'blocked'", wait_position="n", limit_key="'a'")
        raw.execute("ANALYZE pgqueue_job")
        yield
        raw.execute("TRUNCATE pgqueue_job")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names for the filters, which are read within limits of their own."""
    monkeypatch.setattr(filters, "queue_names", lambda alias: ["q0", "q1"])
    for module in (filters, search):
        monkeypatch.setattr(module, "task_paths", lambda alias: ["tests.app.tasks.noop"])


def connected() -> Connection:
    """Django's own connection."""
    connection.ensure_connection()
    raw: Connection = connection.connection
    return raw


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    "query",
    [
        {"worker": "3"}, {"worker": "3", "status": "done"}, {"worker": "3", "status": "failed"},
        {"worker": "3", "status": "pending"}, {"enqueued": "2020-01-01..2020-01-02"},
        {"enqueued": "..2020-01-02", "status": "failed"}, {"finished": "..2020-01-02", "status": "done"},
        {"finished": "..2020-01-02"}, {"q": "kwargs.n=none"}, {"q": "kwargs.n=none", "status": "done"},
        {"q": "args.0=none", "status": "failed"}, {"q": "args.0=none", "status": "blocked"},
    ],
    ids=lambda query: "&".join(f"{name}={text}" for name, text in query.items()),
)  # fmt: skip
def test_a_filter_without_an_index_reads_a_window(
    query: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeysetChangeList, "window", WINDOW)
    monkeypatch.setattr(search, "PERIOD", search.PERIOD * 100)
    request = RequestFactory().get("/", query)
    request.user = User(is_staff=True, is_superuser=True)
    with reads(connected()) as counts:
        admin.site.get_model_admin(Job).get_changelist_instance(request)
    assert counts.of("pgqueue_job") <= MOST, counts


@pytest.mark.usefixtures("filled")
def test_a_running_worker_has_an_index() -> None:
    request = RequestFactory().get("/", {"worker": "3", "status": "running"})
    request.user = User(is_staff=True, is_superuser=True)
    with reads(connected()) as counts:
        changelist = admin.site.get_model_admin(Job).get_changelist_instance(request)
    assert len(changelist.result_list) == PAGE
    assert counts.of("pgqueue_job") <= 2 * (RUNNING // 10 + PAGE) + 10, counts


@pytest.mark.usefixtures("filled")
def test_the_counts_of_the_states_read_no_more_than_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "MOST", WINDOW)
    with reads(connected()) as counts:
        found = states.state_counts("default")
    assert counts.of(LIVE, "pgqueue_job_running", "pgqueue_job_line") <= 3 * (WINDOW + 1), counts
    assert counts.of(HISTORY[0]) <= WINDOW + 1 + 8, counts
    assert counts.of(HISTORY[1]) <= WINDOW + 1 + 20, counts
    assert not any(count.is_exact for status, count in found.items() if status != "cancelled")
    for status, number in {"running": RUNNING, "blocked": MANY, "failed": MANY, "done": 2 * MANY}.items():
        assert abs(found[status].number - number) < MANY // 10, "as the statistics say"
