"""The metrics: what Prometheus reads, that it is the same in each process, and who may read it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.db import OperationalError, connection
from django.test import RequestFactory, override_settings
from django.utils import timezone
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from django_pgqueue import metrics as metrics_module, pause, views
from django_pgqueue.metrics import registry
from django_pgqueue.models import Job, Queue
from django_pgqueue.models.statistics import HISTOGRAM_BOUNDS
from django_pgqueue.monitoring.depth import depths
from django_pgqueue.postgres.timeout import TimeLimitReached
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory, WorkerFactory
from tests.support.figures import classes

pytestmark = pytest.mark.django_db(databases=["default", "other"])

BOTH = ("default", "other")
_LABELS = ("database", "queue", "task", "state", "outcome", "le")


def scrape(*databases: str) -> dict[tuple[str, ...], float]:
    """Return the samples: their names with the values of their labels."""
    text = generate_latest(registry(databases)).decode()
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation.endswith(".")
        for sample in family.samples:
            key = (sample.name, *(sample.labels[name] for name in _LABELS if name in sample.labels))
            assert key not in found, "each series once"
            found[key] = sample.value
    return found


def test_every_figure(wording: Any) -> None:
    JobFactory.create_batch(2, queue_name="mail", run_after=timezone.now() - timedelta(minutes=1))
    JobFactory.create(queue_name="mail", running=True)
    QueueFactory.create(name="idle")
    pause(queue="idle")
    WorkerFactory.create(slots=4)
    WorkerFactory.create(heartbeat_at=timezone.now() - timedelta(hours=1))
    JobStatFactory.create(
        queue_name="mail", task_path="a.b", done=3, failed=1, wait_histogram=classes(c0=1, c2=2, c23=1),
        wait_seconds=9000.5, run_histogram=classes(c5=4), run_seconds=0.1,
    )  # fmt: skip
    found = scrape("default")
    assert 60 <= found.pop(("pgqueue_oldest_ready_age_seconds", "default", "mail")) < 70
    bounds = {float(key[4]) for key in found if key[0] == "pgqueue_run_seconds_bucket"}
    assert sorted(bounds) == pytest.approx([*HISTOGRAM_BOUNDS, float("inf")])
    others = ("longest_running_age_seconds", "scrape_duration_seconds", "run_seconds_bucket")
    assert {
        " ".join(key): round(number, 1)
        for key, number in found.items()
        if key[0].removeprefix("pgqueue_") not in others
    } == wording


def test_databases_are_told_apart_and_one_that_is_down_spoils_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Queue.objects.using("other").create(name="mail")
    Job.objects.using("other").create(queue_name="mail", task_path="a.b")
    assert scrape(*BOTH)["pgqueue_jobs", "other", "mail", "ready"] == 1

    def fail(alias: str, *given: Any) -> Any:
        if alias == "default":
            raise OperationalError("gone")
        return depths(alias, *given)

    monkeypatch.setattr(metrics_module, "depths", fail)
    found = scrape(*BOTH)
    assert (found["pgqueue_up", "default"], found["pgqueue_up", "other"]) == (0, 1)
    assert found["pgqueue_jobs", "other", "mail", "ready"] == 1
    assert not [key for key in found if key[0] == "pgqueue_slots" and key[1] == "default"]
    assert caplog.messages == ["no metrics of the database 'default': gone"]


def test_a_scrape_is_a_few_statements(django_assert_num_queries: Any) -> None:
    for name in ("a", "b", "c"):
        JobFactory.create(queue_name=name)
        WorkerFactory.create()
        JobStatFactory.create(queue_name=name)
    with django_assert_num_queries(11):  # a savepoint and its end, the time limit, and seven statements
        scrape("default")


def test_counts_beyond_the_limit_are_whole_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor counts each minute. If it has not, or not the newest jobs, the scrape counts them."""
    monkeypatch.setattr(metrics_module, "MOST", 2)
    monkeypatch.setattr(metrics_module, "_counted", {})
    JobFactory.create_batch(5, queue_name="mail")
    JobFactory.create_batch(4, queue_name="mail", retrying=True)
    JobFactory.create(queue_name="mail", scheduled=True)

    def counts() -> list[float | None]:
        found = scrape("default")
        states = ("ready", "retrying", "scheduled", "blocked")
        return [found.get(("pgqueue_jobs", "default", "mail", state)) for state in states]

    assert counts() == [5, 4, 1, 0], "no worker has counted"
    JobFactory.create_batch(2, queue_name="mail")
    assert counts() == [5, 4, 1, 0], "once a minute"
    with connection.cursor() as cursor:
        cursor.execute("SELECT _pgqueue_count_depth()")
    assert counts() == [7, 4, 1, 0], "a worker has counted"
    with connection.cursor() as cursor:  # before most of the jobs came
        cursor.execute("UPDATE pgqueue_depth SET ready = 1")
    monkeypatch.setattr(metrics_module, "_counted", {})
    assert counts() == [7, 4, 1, 0]

    def slow(alias: str, *given: Any, most: int = 0) -> Any:
        if most:
            raise TimeLimitReached
        return depths(alias, *given)

    monkeypatch.setattr(metrics_module, "_counted", {})
    monkeypatch.setattr(metrics_module, "depths", slow)
    assert counts() == [None, 4, 1, 0], "no digits that are not known"


TOKEN = "a secret of this test"
DEFAULT = "/?database=default"


def get(view: Any, *, user: Any = None, address: str = "192.0.2.1", path: str = "/", **headers: str) -> Any:
    request = RequestFactory().get(path, REMOTE_ADDR=address, headers=headers)
    request.user = user or AnonymousUser()
    return view(request)


@pytest.fixture(params=["metrics", "health"])
def view(request: pytest.FixtureRequest) -> Any:
    return getattr(views, request.param)


def user(*, is_staff: bool) -> User:
    found = User.objects.create_user("eve", is_staff=is_staff)
    found.user_permissions.set(Permission.objects.filter(codename="view_jobstat"))
    return found


def test_nobody_may_look_by_default(view: Any) -> None:
    refusals = [
        get(view),
        get(view, address="127.0.0.1"),
        get(view, Authorization="Bearer "),
        get(view, Authorization="Bearer None"),
        get(view, user=user(is_staff=False)),
        get(view, user=User.objects.create_user("staff", is_staff=True)),
    ]
    assert [response.status_code for response in refusals] == [401] * 6
    assert refusals[0].headers["WWW-Authenticate"].startswith("Bearer ")
    assert view(RequestFactory().post("/")).status_code == 405


def test_who_may_look(view: Any) -> None:
    WorkerFactory.create()
    assert get(view, user=user(is_staff=True), path=DEFAULT).status_code == 200
    with override_settings(PGQUEUE={"MONITORING_TOKEN": TOKEN}):
        assert get(view, path=DEFAULT, Authorization=f"Bearer {TOKEN}").status_code == 200
        for wrong in (f"Bearer {TOKEN}!", f"Basic {TOKEN}", TOKEN, "Bearer \u00e9"):
            assert get(view, Authorization=wrong).status_code == 401
    with override_settings(PGQUEUE={"MONITORING_NETWORKS": ["10.0.0.0/8", "::1"]}):
        for near in ("10.1.2.3", "::ffff:10.1.2.3", "::1"):
            assert get(view, path=DEFAULT, address=near).status_code == 200
        for far in ("11.0.0.1", "::2", ""):
            assert get(view, address=far, **{"X-Forwarded-For": "10.1.2.3"}).status_code == 401


@pytest.fixture
def _open() -> Any:
    with override_settings(PGQUEUE={"MONITORING_NETWORKS": ["192.0.2.1"]}):
        yield


@pytest.mark.usefixtures("_open")
def test_the_format_is_what_the_scraper_asks_for() -> None:
    assert get(views.metrics).headers["Content-Type"].startswith("text/plain; version=0.0.4")
    response = get(views.metrics, Accept="application/openmetrics-text; version=1.0.0")
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert response.content.endswith(b"# EOF\n")
    assert "no-store" in response.headers["Cache-Control"]


@pytest.mark.usefixtures("_open")
def test_the_view_of_health() -> None:
    JobFactory.create(queue_name="mail")
    response = get(views.health, path=DEFAULT)
    assert (response.status_code, response.content) == (503, b"default: unhealthy: no worker claims jobs\n")
    WorkerFactory.create(queues=["default"])
    assert get(views.health, path=f"{DEFAULT}&queue=mail").content == (
        b"default: unhealthy: mail: 0 workers serve it, at least 1 should\n"
    )
    odd = get(views.health, path=f"{DEFAULT}&queue=%1b[2J%0adefault:%20healthy%e2%80%ae")
    assert odd.content == (
        rb"default: unhealthy: \x1b[2J\ndefault: healthy\u202e: 0 workers serve it, at least 1 should" + b"\n"
    ), "a name is no line, and no terminal obeys it"
    response = get(views.health, path="/?queue=default&database=default")
    assert (response.status_code, response.content[:17]) == (200, b"default: healthy:")
    assert get(views.health).status_code == 503, "the other database has no worker"
    assert get(views.health, path="/?database=nowhere").status_code == 404
