"""What ``manage.py pgqueue`` prints in each situation, whole: as text, as JSON, and when it refuses."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import suppress
from datetime import timedelta
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from django_pgqueue import RateLimit, pause, set_limit
from django_pgqueue.checks.doctor import Examination
from django_pgqueue.jobs.steps import HAS_STEPS
from django_pgqueue.management import _parser
from django_pgqueue.management.subcommands import jobs as jobs_module, operating
from django_pgqueue.models import FailureGroup, Job, JobProgress, Limit, Pause, Queue, Schedule, Step, Worker
from django_pgqueue.monitoring import database as database_parts
from django_pgqueue.monitoring.failures import mute
from django_pgqueue.monitoring.health import FIXES, MINOR
from django_pgqueue.postgres.timeout import TimeLimitReached, time_limit
from django_pgqueue.tasks.progress import HAS_PROGRESS
from tests.app import limit_tasks, unique_tasks
from tests.support import schedules
from tests.support.factories import ERROR, BatchFactory, JobFactory, JobStatFactory, WorkerFactory, spread
from tests.support.figures import classes, failure
from tests.support.jobs import sql
from tests.support.wording import lasting

from .test_subcommands import COMMAND, REFERENCE, run

DECLARED = (limit_tasks, unique_tasks)  # imported, so that their tasks are known

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def said(line: str) -> str:
    """What is printed, with the exit code if it is not 0; figures that depend on the moment have names."""
    try:
        text = run(*shlex.split(line))
    except CommandError as error:
        text = f"exit code {error.returncode}: {error}"
    text = re.sub(r"\b\d+ s ago", "<s> ago", lasting(text))
    text = re.sub(r"\bin \d+ (d|h|min|s)\b( \d+ (h|min|s)\b)?", "in <while>", text)
    text = re.sub(r"[\d.]+ jobs/min", "<rate>", re.sub(r"\b\d+\.\d{3,}", "<number>", text))
    # What is as wide as its values is as narrow as can be: "in 18 h" is wider than "in 9 h".
    varies = "<rate>" in text or "in <while>" in text
    return re.sub(r" {2,}", "  ", text) if varies else re.sub(r" {3,}(?=<time>)", "  ", text)


def hours(count: float) -> Any:
    """The moment before so many hours, and half a minute."""
    return timezone.now() - timedelta(hours=count, seconds=30)


@pytest.fixture
def busy() -> None:
    """Something of everything."""
    alive = {"heartbeat_at": hours(-1)}  # none falls silent while a test runs
    WorkerFactory.create(pk=71, host="app-1", pid=7, slots=4, drain="stop", **alive)
    WorkerFactory.create(pk=70, host="app-0", pid=5, **alive)
    WorkerFactory.create(pk=72, host="app-2", pid=8, queues=["mail", "slow"], heartbeat_at=hours(2))
    WorkerFactory.create(pk=73, host="media", pid=0, supervisor=None, exclude_queues=["never"], drain="stop",
                         state="draining", **alive)  # fmt: skip
    logs = [{"attempt": 2, "lines": [{"at": "2026-11-21", "level": "INFO", "logger": "shop",
                                      "message": "one\ntwo"}], "left_out": 3}]  # fmt: skip
    error = {**ERROR, "step": "charge", "attempt": 2, "class": "builtins.KeyError", "message": "'no\x1b[31m'"}
    step = {"name": "load", "kind": "step", "attempt": 1, "seconds": 0.25, "result": 5,
            "finished_at": "2026-11-21T00:00:00+00:00"}  # fmt: skip
    long_ago = {"enqueued_at": hours(3), "run_after": hours(3)}
    JobFactory.create(
        pk=901, running=True, worker=71, limit_key="sku-7", marks=HAS_STEPS | HAS_PROGRESS,
        last_attempted_at=hours(1), started_at=hours(1), current_step="nap", **long_ago,
    )  # fmt: skip
    JobProgress.objects.create(job_id=901, done=1200, total=5000, note="rows")
    Step.objects.create(job_id=901, name="nap", kind=Step.Kind.SLEEP, wake_at=hours(-1))
    JobFactory.create(pk=902, failed=True, queue_name="mail", errors=[ERROR, error], attempts=2, logs=logs,
                      error_fingerprint="f00", steps=[step], args=["told-nobody"], finished_at=hours(2),
                      last_attempted_at=hours(2), started_at=hours(2), **long_ago)  # fmt: skip
    JobFactory.create(pk=903, queue_name="mail", **long_ago)
    JobFactory.create(pk=904, enqueued_at=hours(3), run_after=hours(-3))
    JobStatFactory.create(
        minute=hours(0.7), queue_name="mail", task_path="shop.tasks.send", done=100, failed=20,
        wait_histogram=classes(c1=120), run_histogram=classes(c10=119, c23=1),
    )  # fmt: skip
    pause(queue="mail", reason="down", author="ann", duration=timedelta(hours=1))
    Queue.objects.create(name="mail", retention=timedelta(days=1), failed_retention=timedelta(0))
    set_limit(queue="mail", concurrency=5, rate_limit=RateLimit(100, per=60, burst=10))
    set_limit(everything=True, concurrency=50)
    Limit.objects.create(name="gone", concurrency=1)
    sql("SELECT _pgqueue_declare_limits(ARRAY['tenant'], ARRAY[1], ARRAY['wait'])")  # as workers write it
    set_limit(name="tenant", concurrency=3)
    failure("f00", failed=2, retried=3, error_class="shop.Down", message="no\x1b[2J answer", version="v7",
            traceback="Traceback\n  File x\nshop.Down", job_id=902)  # fmt: skip
    failure("f11", queue_name="mail", error_class="", message="", traceback="", job_id=902)
    nightly = schedules.declare("nightly", priority=5, timezone="Europe/Paris", cron="0 4 * * *")
    schedules.run(nightly, job_id=123)
    schedules.create("busy", every=timedelta(seconds=30), paused_at=timezone.now(), pause_author="ann",
                     pause_reason="inventory")  # fmt: skip
    schedules.create("broken", next_run_at=None)
    schedules.create("late", next_run_at=timezone.now() - timedelta(minutes=5, seconds=30))
    schedules.create("key", task_path="tests.app.limit_tasks.sync", args=[5])
    Schedule.objects.filter(name="broken").update(cron="61 * * * *", next_run_at=None)


EVERYTHING = [
    "status", "stats", "stats --by queue --span 7d", "health", "queues", "limits", "workers", "pauses",
    "failures", "failures f00 --span 7d", "jobs", "jobs 901", "jobs 902", "why 903", "schedules",
    "schedules show nightly", "schedules show busy", "schedules show broken", "schedules show key",
]  # fmt: skip


def test_a_new_installation(wording: Any) -> None:
    lines = [line for line in EVERYTHING if not re.search(r"\d|show", line)]
    assert {line: said(line) for line in [*lines, "failures --muted", "top"]} == wording


def test_a_busy_queue(busy: None, wording: Any, settings: Any) -> None:
    found = {line: said(line) for line in EVERYTHING}
    assert found == wording
    settings.USE_TZ = False
    with translation.override("de"):
        assert {line: said(line) for line in EVERYTHING} == found, "in English, with any settings"


def test_a_busy_queue_as_json(busy: None, wording: Any) -> None:
    lines = [
        "status", "queues", "limits", "workers", "pauses", "failures f00", "jobs 901", "jobs 902", "why 903",
        "stats", "schedules show nightly",
    ]  # fmt: skip

    def on_one_line(line: str) -> str:
        text = re.sub(r'"pause": \d+', '"pause": 10', said(f"{line} --json"))
        document = json.loads(text.replace("<number>", "0.5"))
        if isinstance(document, dict) and "points" in document:  # one for each hour that has begun
            document["points"] = [point for point in document["points"] if point["failed"]]
        return json.dumps(document, ensure_ascii=False)

    assert {line: on_one_line(line) for line in lines} == wording
    shown = json.loads(run("schedules", "--json", "show", "nightly"))
    assert shown in json.loads(run("schedules", "list", "--json"))


def test_times_are_in_the_current_time_zone(settings: Any) -> None:
    schedules.create("nightly")
    settings.TIME_ZONE = "Asia/Tokyo"
    printed = run("schedules")
    assert "Times are in Asia/Tokyo." in printed
    assert "2100-01-01 12:00:00" in printed


def test_other_databases(wording: Any) -> None:
    WorkerFactory.create()
    Job.objects.using("other").bulk_create([JobFactory.build(pk=9, queue_name="there")])
    schedules.create("nightly", using="other")
    lines = (
        "status --database other", "jobs other:9 --quiet", "why other:9", "schedules --database other",
        "workers --database other", "drain-worker app-1:1 --database other",
        "schedules pause nightly --database other", "schedules resume nightly --database other",
    )  # fmt: skip
    assert {line: said(line) for line in lines} == wording


REFUSED = """
    why 77 | why x | jobs 5 | jobs 5 other:6 | jobs five | jobs 5 --status failed | jobs --status faild
    jobs --since soon | jobs --worker app-9:1 | jobs --key a --status done | jobs --json --quiet
    jobs --task visit | jobs --queue mial | jobs --limit 0 | jobs --fingerprint ab | failures ab
    retry --fingerprint ab --dry-run | jobs --arg order_id | jobs --arg =5 | jobs --arg a..b=5
    jobs --arg 0=5 | jobs --arg card.password=x | failures f22 | stats --span 2h | cancel | cancel 404
    retry --status running | cancel --status failed,pending | retry --key sku | retry 5 --queue mail
    retry --worker app-1:7 | retry --status cancelled | run-now --queue mial --yes | retry 901 | cancel 905
    retry 905 | pause | pause --queue mail --everything | pause --everything --until noon
    pause --everything --until 2020-13-01T00:00 | pause --everything --for soon | resume --queue slow
    resume --queue Mail | resume --everything
    resume --queue 'a b' | drain-worker | drain-worker app-9:1 | drain-worker pod:1 | schedules show nihgtly
    schedules pause nihgtly | schedules resume nihgtly | schedules enqueue nihgtly | schedules shwo
    schedules show | schedules list nightly | schedules enqueue nightly --reason x
    schedules enqueue nightly --json | schedules pause busy | schedules resume nightly
    schedules enqueue key | metrics --port 1 --address 203.0.113.1 | run 5 | drain app-1:7
    schedules run nightly | purge --queue mail | jbos | schedules trigger nightly
    pause --everything --by ann | pause --everything --raeson=x | stats --by tsak | jobs 5 --jsn
    workers --backend x | --jsn | workers --zzz 5 | workers --database nowhere
"""


def test_what_is_refused_names_the_remedy(busy: None, wording: Any) -> None:
    JobFactory.create(pk=905, done=True)
    for pk in (74, 75):
        WorkerFactory.create(pk=pk, host="pod", pid=1)
    now = timezone.now()
    for fingerprint in ("abc1", "abd2"):
        FailureGroup.objects.create(fingerprint=fingerprint, sample_job=1, first_seen=now, last_seen=now)
    lines = [line.strip() for line in re.split(r"[|\n]", REFUSED.strip())]
    assert {line: said(line) for line in lines} == wording
    assert Job.objects.get(pk=902).status == "failed"


def test_what_takes_too_long(busy: None, monkeypatch: pytest.MonkeyPatch, wording: Any) -> None:
    late = Mock(side_effect=TimeLimitReached)
    monkeypatch.setattr(jobs_module, "time_limit", late)
    monkeypatch.setattr("django_pgqueue.management.subcommands.changing.time_limit", late)
    assert {line: said(line) for line in ("jobs", "cancel --queue mail --yes")} == wording


# --- Which rows


def listed(*options: str) -> list[int]:
    """The ids in the JSON of the list."""
    return [row["id"] for row in json.loads(run("jobs", *options, "--json"))["jobs"]]


def test_the_list_of_jobs_is_read_page_by_page() -> None:
    ids = [JobFactory.create().pk for _ in range(5)]
    first = json.loads(run("jobs", "--limit", "3", "--json"))
    assert ([row["id"] for row in first["jobs"]], first["next"]) == (ids[:1:-1], ids[2])
    rest = json.loads(run("jobs", "--limit", "3", "--after", str(first["next"]), "--json"))
    assert ([row["id"] for row in rest["jobs"]], rest["next"]) == (ids[1::-1], None)
    assert run("jobs", "--limit", "2").splitlines()[-1] == f"There are more: --after {ids[3]}"
    assert run("jobs", "--limit", "2", "--quiet").split() == [str(ids[4]), str(ids[3])]


def test_each_filter_of_jobs() -> None:
    worker = WorkerFactory.create(host="app-1", pid=7)
    batch = BatchFactory.create()
    long_ago, now = timezone.now() - timedelta(hours=3), timezone.now()
    FailureGroup.objects.create(fingerprint="abc", sample_job=1, first_seen=now, last_seen=now)
    made: dict[str, Any] = {
        "--status=failed": JobFactory.create(failed=True, finished_at=long_ago, enqueued_at=long_ago),
        "--status=blocked,running": JobFactory.create(running=True, worker=worker.pk),
        "--queue=mail": JobFactory.create(queue_name="mail", enqueued_at=long_ago),
        "--task=tests.app.tasks.noop": JobFactory.create(task_path="tests.app.tasks.noop"),
        f"--batch={batch.pk}": JobFactory.create(batch=batch, enqueued_at=long_ago),
        "--key=sku-7": JobFactory.create(limit_key="sku-7", wait_position=1),
        "--fingerprint=ab": JobFactory.create(retrying=True, error_fingerprint="abc"),
        "--status=done": JobFactory.create(done=True),
    }
    for option, job in made.items():
        assert listed(option) == [job.pk], option
    running = made["--status=blocked,running"]
    assert listed("--worker", "app-1:7") == listed("--worker", str(worker.pk)) == [running.pk]
    recent = {job.pk for job in made.values() if job.enqueued_at > long_ago}
    assert set(listed("--since", "2h")) == recent
    assert set(listed("--since", long_ago.isoformat())) == {job.pk for job in made.values()}
    ended = {made["--status=failed"].pk, made["--status=done"].pk}
    assert set(listed("--status=failed,done,failed")) == ended


FOUND_BY_ARGUMENT = {
    "amount=17": "number", "amount=17.0": "number", 'amount="17"': "text", "amount=true": "truth",
    "amount=null": "null", "amount=seventeen": "words", "amount=[1]": "list as text",
    "customer.id=5": "nested", "customer.tags.1=b": "nested",
}  # fmt: skip


def test_jobs_are_found_by_an_argument() -> None:
    customer = {"id": 5, "tags": ["a", "b"], "token": "t"}
    amounts = {
        "number": 17, "text": "17", "truth": True, "null": None, "words": "seventeen", "list": [1],
        "list as text": "[1]",
    }  # fmt: skip
    made = {name: JobFactory.create(kwargs={"amount": value}).pk for name, value in amounts.items()}
    made["nested"] = JobFactory.create(kwargs={"customer": customer}).pk
    for text, name in FOUND_BY_ARGUMENT.items():
        assert made[name] in listed("--arg", text), text
    assert listed("--arg", "amount=17") == [made["text"], made["number"]]
    assert listed("--arg", 'amount="17"') == [made["text"]]
    assert listed("--arg", "customer.id=5", "--arg", "customer.id=6") == []
    for odd in ("amount=NaN", "amount=1e999", 'amount="\\ud800"', 'amount="\\u0000"'):
        assert listed("--arg", odd) == [], odd
    assert run("cancel", "--arg", "amount=seventeen", "--yes") == "1 job was cancelled, or asked to stop."


def test_positional_arguments_have_the_names_of_the_parameters() -> None:
    paths = (f"tests.app.tasks.{name}" for name in ("mail", "noop"))
    mail, noop = (JobFactory.create(task_path=path, args=[7]).pk for path in paths)
    assert listed("--arg", "number=7") == [mail]
    assert listed("--arg", "number=7", "--task", "tests.app.tasks.mail") == [mail]
    assert listed("--arg", "0=7", "--task", "tests.app.tasks.noop") == [noop]
    assert listed("--arg", "number=8") == listed("--arg", "number=7", "--task", "tests.app.tasks.noop") == []


@override_settings(PGQUEUE={"REDACT": ["number"]})
def test_no_search_finds_what_is_redacted() -> None:
    JobFactory.create(task_path="tests.app.tasks.mail", args=[7], kwargs={"order": {"number": 7}})
    for given in (["number=7"], ["order.number=7"], ["0=7", "--task", "tests.app.tasks.mail"]):
        for command in ("jobs", "cancel"):
            with pytest.raises(CommandError, match="cannot be searched, because REDACT hides it") as refused:
                run(command, "--arg", *given)
            assert refused.value.returncode == 2
    [row] = json.loads(run("jobs", "--json"))["jobs"]
    assert (row["args"], row["kwargs"]) == (["[redacted]"], {"order": {"number": "[redacted]"}})
    assert '"[redacted]", order={"number": "[redacted]"}' in run("jobs")
    with override_settings(PGQUEUE={"REDACT": ["re:x"]}), pytest.raises(CommandError, match="patterns"):
        run("jobs", "--arg", "a=1")
    large = JobFactory.create(args=["x" * 5_000]).pk
    assert json.loads(run("jobs", "--json", "--limit", "1"))["jobs"][0]["args"] is None
    assert json.loads(run("jobs", str(large), "--json"))["jobs"][0]["args"] == ["x" * 5_000]


def test_a_slow_search_can_go_on(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    ids = [JobFactory.create(kwargs={"n": number % 4}).pk for number in range(12)]
    monkeypatch.setattr(jobs_module, "_FIRST_RANGE", 2)
    assert listed("--arg", "n=0") == [ids[8], ids[4], ids[0]]
    assert json.loads(run("jobs", "--arg", "n=0", "--json"))["timed_out"] is False

    def late_at(third: int) -> None:
        calls = count()

        def limit(alias: str, seconds: float) -> Any:
            if next(calls) == third:
                raise TimeLimitReached
            return time_limit(alias, 5)

        monkeypatch.setattr(jobs_module, "time_limit", limit)

    late_at(3)  # the bounds, two ids, four ids, and then no more
    found = json.loads(run("jobs", "--arg", "n=0", "--json"))
    assert [row["id"] for row in found["jobs"]] == [ids[8]]
    assert (found["next"], found["timed_out"]) == (ids[6], True)
    late_at(3)
    rest = f"5 s were not enough to search the jobs below the id {ids[6]}. To go on: --after {ids[6]}"
    assert run("jobs", "--arg", "n=0").splitlines()[-1] == rest
    late_at(3)
    assert run("jobs", "--arg", "n=9").splitlines() == ["No such job was found.", "", rest]
    late_at(3)
    assert run("jobs", "--arg", "n=0", "--quiet") == str(ids[8])
    assert caplog.messages == [rest]
    late_at(99)
    assert listed("--arg", "n=0", "--after", str(ids[6])) == [ids[4], ids[0]]


def test_each_filter_of_failures_and_figures(busy: None) -> None:
    assert len(run("failures", "--queue", "mail").splitlines()) == 2
    assert len(run("failures", "--limit", "1").splitlines()) == 2
    assert run("failures", "--task", "none", "--span", "1h") == "Nothing has failed in the last 1h."
    mute("default", "f11", "ann")
    assert "f11" in run("failures", "--muted")
    assert [row["queue_name"] for row in json.loads(run("queues", "--json", "--queue", "mail"))] == ["mail"]
    assert "shop.tasks.send" not in run("stats", "--queue", "other")
    assert len(run("stats", "--by", "time", "--span", "24h").splitlines()) > 96
    JobFactory.create_batch(3, queue_name="slow")
    for options in (("--depth", "2"), ("--workers", "5", "--queue", "slow")):
        with pytest.raises(CommandError, match=r"^unhealthy: .*slow: ") as caught:
            run("health", *options)
        assert caught.value.returncode == 1


def test_the_list_of_schedules_takes_three_statements_however_many_there_are() -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            run("schedules", "--json")
        return sum('"pgqueue_' in entry["sql"] for entry in captured)

    schedules.run(schedules.create("first"))
    few = statements()
    for number in range(5):
        schedules.run(schedules.create(f"another-{number}"))
    assert statements() == few


def test_database(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run("database").splitlines()
    assert lines[0] == "Lock contention: fine. No session waits for a lock."
    assert sum(not line.startswith("  ") for line in lines) == 7
    monkeypatch.setattr(database_parts, "MOST_USED", 0)
    assert "\nConnections: act. " in (text := run("database"))
    assert "\n  Act when more than 0% are in use" in text
    found = json.loads(run("database", "--json", "--statements"))
    parts = {part["code"]: part for part in found["parts"]}
    assert list(parts) == ["locks", "snapshots", "tables", "sessions", "traffic", "wakeups", "ring"]
    assert {part["state"] for part in parts.values()} <= {"fine", "act"}
    assert all(part["finding"].endswith(".") for part in parts.values())
    assert parts["tables"]["rows"][0]["name"] == "pgqueue_job_live"


def test_each_problem_has_a_fix() -> None:
    assert {*MINOR} < {*FIXES}


# --- JSON, and what must not be shown


def test_json_is_one_document_whose_keys_are_on_the_page(
    busy: None, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "stack", lambda job, timeout: "a line\n")
    Worker.objects.filter(pk=72).delete()  # a problem
    well = [Examination("clock", "Clock", note="the clocks differ by 0.1 ms")]
    monkeypatch.setattr(operating, "examine", lambda _alias: well)
    with_json = {name for name, each in _parser.found().items() if each.has_json or name == "schedules"}
    assert {*_parser.found()} - with_json == {"metrics", "roles", "run-here", "tenants", "top"}
    more = {
        "why": "903", "drain-worker": "71", "cancel": "904", "pause": "--queue mail",
        "resume": "--queue mail", "retry": "--status failed --yes", "run-now": "--queue mail",
        "health": "--age 86400", "stack": "901",
    }  # fmt: skip
    sections = Path(REFERENCE).read_text().split("\n### ")
    for name in sorted(with_json, key=["resume", "pause", "cancel"].count):
        document = json.loads(run(name, *more.get(name, "").split(), "--json"))
        assert capfd.readouterr().out == ""
        (section,) = [part for part in sections if f"`pgqueue {name}`" in part[:80]]
        rows = document if isinstance(document, list) else [document]
        assert [key for row in rows for key in row if f"`{key}`" not in section] == [], name


@override_settings(PGQUEUE={"REDACT": ["password", "re:tok_[a-z]+|File x", r"re:\d{4}(-\d{4}){3}"]})
def test_what_must_not_be_shown_is_redacted() -> None:
    job = JobFactory.create(
        failed=True, kwargs={"password": "open sesame"}, result={"password": "open sesame"},
        errors=[{**ERROR, "message": "tok_secret", "traceback": "Traceback: tok_secret"}],
        logs=[{"attempt": 1, "lines": [{"at": "", "level": "", "logger": "", "message": "tok_secret"}]}],
        steps=[{"name": "load", "result": {"password": "open sesame"}}], waiting_reason="tok_secret",
    )  # fmt: skip
    failure("f00", message="tok_secret", traceback="Traceback\n  File x")
    for line in ("jobs", f"jobs {job.pk}", "failures", "failures f00"):
        for json_too in ([], ["--json"]):
            printed = run(*line.split(), *json_too)
            assert not [words for words in ("open sesame", "tok_secret", "File x") if words in printed]
            assert "[redacted]" in printed
    # A pattern sees more of an error than a list shows.
    begins = "x" * 290
    error = {**ERROR, "message": f"{begins} 4111-1111-1111-1111 was refused"}
    job = JobFactory.create(failed=True, errors=[error])
    [row, _] = json.loads(run("jobs", "--json"))["jobs"]
    assert row["error"]["message"] == f"{begins} [redacted"
    [whole] = json.loads(run("jobs", str(job.pk), "--json"))["jobs"]
    assert whole["error"]["message"] == f"{begins} [redacted] was refused"
    JobFactory.create(failed=True, errors=[{**ERROR, "message": "x" * 5_000}])
    assert json.loads(run("jobs", "--json"))["jobs"][0]["error"]["message"] == ""


@override_settings(PGQUEUE={"REDACT": ["re:(?s)BEGIN KEY.*END KEY"]})
def test_a_pattern_may_be_about_several_lines_of_a_log() -> None:
    def line(message: str) -> dict[str, str]:
        return {"at": "", "level": "INFO", "logger": "shop", "message": message}

    logs = [
        {"attempt": 1, "lines": [line("one\ntwo"), line("three")]},
        {"attempt": 2, "lines": [line("it is BEGIN KEY"), line("zanzibar"), line("END KEY, thanks")]},
    ]
    job = JobFactory.create(failed=True, errors=[ERROR], logs=logs)
    text = run("jobs", str(job.pk))
    assert "zanzibar" not in text
    assert "INFO shop: it is [redacted], thanks" in text
    first, second = json.loads(run("jobs", str(job.pk), "--json"))["jobs"][0]["logs"]
    assert [each["message"] for each in first["lines"]] == ["one\ntwo", "three"]
    assert [each["message"] for each in second["lines"]] == ["it is [redacted], thanks", "", ""]


# --- Over several shards: one answer, and those that did not answer are named


BOTH = ["default", "other"]


def printed(*arguments: str, **options: Any) -> str:
    """Return what the command prints, and below it the error with which it ends."""
    out = StringIO()
    try:
        call_command(COMMAND, *arguments, stdout=out, **options)
    except CommandError as error:
        return f"{out.getvalue()}Error {error.returncode}: {error}".split("connection to server")[0]
    return out.getvalue()


def document(*arguments: str) -> Any:
    """Return the document that the command prints, whatever it says below it."""
    out = StringIO()
    with suppress(CommandError):
        call_command(COMMAND, *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def fill() -> None:
    spread(6)
    for alias in BOTH:
        WorkerFactory.build(id=5, host=f"app-{alias}", pid=7, slots=4).save(using=alias, force_insert=True)


OF_SHARDS = ("status", "queues", "workers", "pauses", "limits", "health", "failures", "jobs", "top --once")


@pytest.mark.parametrize("arguments", OF_SHARDS)
def test_reads_all_shards_and_names_one_that_is_down(one_is_down: None, wording: Any, arguments: str) -> None:
    fill()
    said = printed(*arguments.split())
    assert [line for line in said.splitlines() if "Subcommands:" not in line] == wording


def test_json_has_the_shard(one_is_down: None) -> None:
    fill()
    assert "Error 1: The database down did not answer" in printed("workers", "--json")
    hosts = [(row["shard"], row["host"]) for row in document("workers")]
    assert hosts == [("default", "app-default"), ("other", "app-other")]
    assert [row["host"] for row in document("workers", "--database", "other")] == ["app-other"]
    found = document("status")
    assert [each["shard"] for each in found["shards"]] == BOTH
    assert [*found["unanswered"]] == ["down"]


def test_jobs_go_on_after_a_position_of_each_shard(shards: None) -> None:
    fill()
    seen: list[tuple[str, int]] = []
    after: list[str] = []
    while True:
        found = document("jobs", "--limit", "2", *after)
        seen += [(job["shard"], job["id"]) for job in found["jobs"]]
        if found["next"] is None:
            break
        after = ["--after", found["next"]]
    assert seen == [(BOTH[number % 2], number) for number in range(6, 0, -1)]
    assert printed("jobs", "--quiet").split() == ["6", "other:5", "4", "other:3", "2", "other:1"]


def test_ids_of_several_shards(shards: None, wording: Any) -> None:
    fill()
    said = [printed("cancel", "2", "other:3", "--yes") for _ in range(2)]
    assert Job.objects.get(pk=2).status == Job.objects.using("other").get(pk=3).status == "cancelled"
    said.append(printed("jobs", "4", "other:5", "--quiet"))
    assert printed("why", "other:1").startswith("Job 1 (shop.tasks.send): ")
    assert said == wording


def test_a_change_of_all_that_match(one_is_down: None, wording: Any) -> None:
    fill()
    assert [printed("cancel", "--queue", "mail", how) for how in ("--dry-run", "--yes")] == wording
    for alias in BOTH:
        assert not Job.objects.using(alias).exclude(status="cancelled").exists()


def test_pause_and_resume(one_is_down: None, wording: Any) -> None:
    for alias in BOTH:
        Queue(name="mail").save(using=alias)
    said = [printed("pause", "--queue", "mail", "--author", "ann")]
    assert [Pause.objects.using(alias).get().author for alias in BOTH] == ["ann", "ann"]
    Pause.objects.using("other").all().delete()
    said += [printed("resume", "--queue", "mail"), printed("resume", "--queue", "mail")]
    assert not Pause.objects.exists()
    assert said == wording


def test_the_schedules_of_all_shards_are_listed_and_one_is_paused_in_its_own(one_is_down: None) -> None:
    for alias in BOTH:
        schedules.create(f"of-{alias}", using=alias)
    said = printed("schedules")
    listed = [line.split()[:2] for line in said.splitlines() if " of-" in line]
    assert listed == [["default", "of-default"], ["other", "of-other"]]
    assert "The database down did not answer" in said
    refused = printed("schedules", "pause", "of-other")
    assert "There is no schedule 'of-other' in the database 'default'" in refused
    assert printed("schedules", "pause", "of-other", database="other") == "of-other is paused.\n"


def test_the_hint_for_autoscalers_is_the_sum(shards: None) -> None:
    fill()
    assert [(row["queue_name"], row["ready"]) for row in document("scale-hint")["queues"]] == [("mail", 6)]
