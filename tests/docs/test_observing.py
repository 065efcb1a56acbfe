"""The examples about seeing what the queue does: the admin, reasons, metrics, alerts, and the terminal."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import stat
from datetime import timedelta
from io import StringIO
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from django.contrib.auth.models import Group, Permission
from django.core import mail
from django.core.checks import run_checks
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone
from prometheus_client import generate_latest

from django_pgqueue import conf, enqueue, pause, redaction
from django_pgqueue.admin.job_page import page as job_page
from django_pgqueue.alerts import Alert
from django_pgqueue.maintenance.alerts import send
from django_pgqueue.metrics import registry
from django_pgqueue.models import Job, Pause
from django_pgqueue.redaction import REDACTED, redact, redact_call, redact_text
from tests.app import secret_tasks
from tests.management.test_subcommands import run
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory
from tests.support.figures import fold, note
from tests.support.jobs import sql
from tests.support.sessions import Connection

from .shop import DOCS, EXAMPLES, ask_by_name, example, fresh, in_shop, setting, statements

pytestmark = in_shop

# --- The admin


def test_a_project_adds_to_the_overview(admin_client: Client, settings: Any) -> None:
    source = (EXAMPLES / "console" / "overview.html").read_text()
    [templates] = settings.TEMPLATES
    loaders = [
        ("django.template.loaders.locmem.Loader", {"admin/django_pgqueue/overview.html": source}),
        "django.template.loaders.app_directories.Loader",
    ]
    own = {**templates, "APP_DIRS": False, "OPTIONS": {**templates["OPTIONS"], "loaders": loaders}}
    with override_settings(TEMPLATES=[own]):
        page = admin_client.get("/admin/django_pgqueue/job/overview/").content.decode()
        assert "1 problem: no worker claims jobs. Call the shop team." in page
        assert page.index('id="pgqueue-board"') < page.index("Status of our suppliers")
        WorkerFactory.create()
        part = admin_client.get("/admin/django_pgqueue/job/overview/", {"part": "now"}).content.decode()
    assert 'id="shop-runbook"' in part
    assert "<p>Nothing.</p>" in part


def test_users_choose_the_zone_of_the_times(admin_client: Client, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "shop.zones.zone_of_the_user"]
    address = "/admin/django_pgqueue/job/overview/"
    assert "data-pgqueue-kept" not in admin_client.get(address).content.decode()
    session = admin_client.session
    session["zone"] = "Asia/Tokyo"
    session.save()
    admin_client.cookies["sessionid"] = str(session.session_key)
    assert 'data-pgqueue-zone="Asia/Tokyo" data-pgqueue-kept>' in admin_client.get(address).content.decode()


def test_what_the_shop_adds_to_its_jobs(
    admin_client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_page, "_declared", {})
    monkeypatch.setattr(redaction, "_not_before", {})  # the shop was not there in other tests
    example("job_links")
    job_page.links_for(example("tasks").send_receipt)(example("job_links").receipt_links)
    job = example("orders").place_order("ann@example.com", 5)
    folder = str(EXAMPLES / "shop" / "templates")
    with override_settings(TEMPLATES=[{**settings.TEMPLATES[0], "DIRS": [folder]}]):
        page = admin_client.get(reverse("admin:django_pgqueue_job_change", args=[job.pk])).content.decode()
    [number] = job.args
    assert f"<p>Order {number}, attempt 0.</p>" in page
    assert f'<a href="/orders/{number}/">Order {number}</a>' in page
    assert "https://wiki.example/jobs/shop.tasks.send_receipt" in page
    assert "pgqueue-timeline" not in page


def test_the_groups_have_all_permissions_each_more_than_the_one_before() -> None:
    groups = example("groups")
    for _ in range(2):
        groups.make_groups()
    viewer, operator, whole = (
        set(Group.objects.get(name=f"Job queue {name}").permissions.values_list("codename", flat=True))
        for name in ("viewer", "operator", "admin")
    )
    existing = Permission.objects.filter(content_type__app_label="django_pgqueue")
    assert whole == set(existing.values_list("codename", flat=True)), "one is missing in groups.py"
    assert viewer < operator < whole
    assert all(name.startswith("view_") for name in viewer)
    page = (DOCS / "howto" / "permissions.md").read_text()
    section = page.split("## Each permission")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == whole
    rows = dict(re.findall(r"^\| (\w+) \| (also .+?) \|", page, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", rows["operator"])) == operator - viewer
    assert set(re.findall(r"`(\w+)`", rows["admin"])) == whole - operator


# --- Reasons and redaction


def test_the_reason_in_sql_and_for_all_late_jobs() -> None:
    JobFactory.create(queue_name="mail")
    late = JobFactory.create(queue_name="mail", run_after=timezone.now() - timedelta(hours=2))
    statement = re.sub(r"(?<=why\()1", str(late.pk), statements("why/reason"))
    (found,) = ask_by_name(statement)
    assert (found["code"], json.loads(found["facts"])["queue_name"]) == ("no_worker", "mail")
    (reason,) = example("reasons").late_jobs()
    assert (reason.job_id, reason.code) == (late.pk, "no_worker")
    assert example("reasons").report().startswith(f"job {late.pk}: No worker serves the queue 'mail'")


def test_a_pause_is_told_as_on_the_page() -> None:
    job = enqueue(example("tasks").send_receipt, 5)
    pause(queue="mail", author="anna", reason="the provider is down")
    said = re.sub(r"\d{4}-.{14}", "2026-11-23 09:12:40", run("why", str(job.pk)))
    assert said.replace(f"Job {job.pk} ", "Job 4712 ") in (DOCS / "howto" / "troubleshooting.md").read_text()


def test_the_backend_of_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    with override_settings(TASKS=setting("tasks")["TASKS"]):
        runpy.run_path(str(EXAMPLES / "which_backend.py"))
    assert capsys.readouterr().out == "PgQueueBackend\n"


def test_redaction_of_names_and_patterns_and_by_a_callable() -> None:
    with override_settings(**setting("redact")):
        given = {"customerIban": "DE1", "password": "x", "note": "card 4111 1111 1111 1111", "id": 5}
        shown = {"customerIban": REDACTED, "password": REDACTED, "note": f"card {REDACTED}", "id": 5}
        assert redact(given) == shown
        assert redact_text("4111-1111-1111-1111 is refused") == f"{REDACTED} is refused"
    with override_settings(PGQUEUE={"REDACT": "shop.privacy.redact"}):
        path = secret_tasks.sign_in.module_path
        assert redact([{"email": "a@b.c", "n": 1}], path) == [{"email": REDACTED, "n": 1}]
        hidden = ([REDACTED, REDACTED], {"api_key": REDACTED})
        assert redact_call(["ann", "x"], {"api_key": "k"}, "shop.salaries.pay") == hidden


# --- Prometheus and Grafana


DASHBOARD: dict[str, Any] = json.loads((DOCS / "_static/monitoring/grafana-dashboard.json").read_text())
ALERTS = yaml.safe_load((EXAMPLES / "monitoring/alerts.yaml").read_text())
QUERIES = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
    *(rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]),
    *(each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"),
]


def test_every_query_uses_series_and_labels_that_exist_and_the_page_lists_them() -> None:
    JobFactory.create()
    JobStatFactory.create()
    labels: dict[str, set[str]] = {}
    for line in generate_latest(registry(["default"])).decode().splitlines():
        if match := re.match(r"(\w+)\{(.*)\} ", line):
            labels[match[1]] = {"le", *re.findall(r"(\w+)=", match[2])}
    for query in QUERIES:
        used = re.findall(r"(pgqueue_\w+)(?:\{([^}]*)\})?", query)
        assert used, query
        for series, matchers in used:
            assert series in labels, query
            assert set(re.findall(r"(\w+)\s*[=!]", matchers or "")) <= labels[series], query
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
            known = set().union(*(labels[each] for each, _ in used))
            assert {each.strip() for each in group.split(",")} <= known, query
    listed = set(re.findall(r"^\| `(pgqueue_\w+)`", (DOCS / "howto/monitoring.md").read_text(), re.MULTILINE))
    assert listed == {re.sub(r"_(bucket|count|sum)$", "", series) for series in labels}


def test_the_panels_fill_rows_and_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        of_panel = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & of_panel
        cells |= of_panel
        assert panel["description"].endswith(".")
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_urls_and_the_settings(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONITORING_TOKEN", "an example, not a secret")
    WorkerFactory.create_batch(2)
    (job,) = yaml.safe_load((EXAMPLES / "monitoring/prometheus.yaml").read_text())["scrape_configs"]
    with override_settings(ROOT_URLCONF="shop.monitoring_urls", **setting("monitoring")):
        assert conf.problems() == []
        health = "/queue/health/?database=default"
        assert client.get(health, REMOTE_ADDR="192.0.2.1").status_code == 401
        headers = {"Authorization": "Bearer an example, not a secret"}
        far: dict[str, Any] = {"headers": headers, "REMOTE_ADDR": "192.0.2.1"}
        answer = client.get(health, **far)
        assert (answer.status_code, answer.content[:17]) == (200, b"default: healthy:")
        assert b"pgqueue_up" in client.get(job["metrics_path"], **far).content
        assert client.get(job["metrics_path"], REMOTE_ADDR="10.20.0.7").status_code == 200
    monkeypatch.delenv("MONITORING_TOKEN")
    with override_settings(**setting("monitoring")):
        assert conf.current().monitoring_token is None
    assert stat.S_IMODE((EXAMPLES / "monitoring/uptime.sh").stat().st_mode) & stat.S_IXUSR


# --- Alerts


@pytest.mark.filterwarnings("ignore:Django 2028 will not have a default mailer")
def test_each_receiver_of_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    def alert(**values: Any) -> Alert:
        return Alert(database="default", at=timezone.now(), **values)

    alerts = [
        alert(kind="age", text="mail: late", queue_name="mail"),
        alert(kind="age", text="over: mail: late", queue_name="mail", is_over=True),
        alert(kind="new_failure", text="new failure: Down", fingerprint="f00", count=1),
        alert(kind="job_failed", text="1 job failed: Down", fingerprint="f00", count=1),
    ]
    with override_settings(**{**setting("alerts"), "CHAT_WEBHOOK": "https://chat.example/"}):
        assert [message for message in run_checks(tags=["pgqueue"]) if message.id == "pgqueue.E023"] == []
        receivers, webhook = example("alerts"), Mock()
        monkeypatch.setattr(receivers, "urlopen", webhook)
        receivers.COUNTS.clear()
        send(alerts)
        receivers.alert_sent.disconnect(receivers.count)
    assert [each.subject for each in mail.outbox] == ["mail: late", "new failure: Down"]
    assert "/job/failures/f00/" in mail.outbox[1].body
    received = [json.loads(call.args[0].data)["text"] for call in webhook.call_args_list]
    assert [text[2:] for text in received] == [each.text for each in alerts]
    assert receivers.COUNTS == {"age": 2, "new_failure": 1, "job_failed": 1}


# --- The terminal: scripts of the pages, line by line


def lines_of(script: str) -> list[str]:
    text = (EXAMPLES / script).read_text().replace("|\n", "|")
    return [line for line in text.splitlines() if not line.startswith("#")]


def pgqueue(line: str, more: str = "") -> str:
    """The output of a line ``python manage.py pgqueue ...``."""
    words = shlex.split(f"{line} {more}")
    assert words[:3] == ["python", "manage.py", "pgqueue"]
    return run(*words[3:])


def test_failures_in_the_terminal(one: Connection) -> None:
    lines = lines_of("deployment/failures.sh")
    fingerprint = lines[1].split()[-1]
    job = JobFactory.create(failed=True, error_fingerprint=fingerprint)
    note(one, fingerprint, message="no answer")
    fold(one)
    printed = [pgqueue(line, "--yes" if "retry" in line else "") for line in lines]
    assert ["no answer" in text for text in printed] == [True, True, False]
    assert fresh(job).status == "pending"


def test_after_a_bad_deploy() -> None:
    task = "shop.tasks.send_receipt"
    failed = JobFactory.create(failed=True, task_path=task)
    JobFactory.create(failed=True, task_path="shop.tasks.other")
    said = [pgqueue(line).strip() for line in lines_of("terminal/bad_deploy.sh")]
    assert said[0].startswith(f"Paused the task {task} until ")
    assert str(failed.pk) in said[1]
    assert said[2:] == [
        "1 failed job would run again. Nothing has changed.",
        f"Resumed the task {task}.",
        "1 job runs again.",
    ]
    assert list(Job.objects.filter(status="pending")) == [failed]
    assert not Pause.objects.exists()


def test_pipes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    failed = [JobFactory.create(failed=True, queue_name="mail").pk for _ in range(3)]
    worker = WorkerFactory.create(host="app-1", pid=7)
    running = JobFactory.create(running=True, worker=worker.pk, last_attempted_at=timezone.now())
    choose, slowest = [line.split("|") for line in lines_of("terminal/pipes.sh")]
    ids = pgqueue(choose[0]).split()
    assert ids == [str(pk) for pk in reversed(failed)]
    assert choose[2].split()[:2] == ["xargs", "-r"]
    assert pgqueue(choose[2].split("-r ")[1], " ".join(ids)) == "3 jobs run again."
    monkeypatch.setattr("sys.stdin", StringIO(pgqueue(slowest[0])))
    exec((EXAMPLES / "terminal" / slowest[1].split()[1]).read_text(), {})  # noqa: S102
    printed = capsys.readouterr().out
    assert re.fullmatch(rf"{running.pk} tests\.app\.tasks\.add \d+ s on app-1:7\n", printed)


def test_what_running_jobs_do(monkeypatch: pytest.MonkeyPatch) -> None:
    job = enqueue(example("tasks").send_receipt, 1)
    sql("UPDATE pgqueue_job_live SET status = 'running', lease = 1, worker = 1,"
        " last_attempted_at = now() - interval '1 hour' WHERE id = %s", job.pk)  # fmt: skip
    monkeypatch.setattr(Job, "stack", lambda job: f"of {job.pk}")
    assert example("stacks").what_they_do() == {job.pk: f"of {job.pk}"}

    monkeypatch.setattr(Job, "stack", Mock(side_effect=TimeoutError("no answer")))
    assert example("stacks").what_they_do() == {job.pk: "no answer"}
