"""Measure the console: ``python -m benchmarks.console_pages [FINISHED [WAITING [TASKS]]] [NAME]``.

The server, the sizes, and the way to measure are those of ``benchmarks.console_queries``; -1 for FINISHED
takes what an earlier run has left. To its data, this adds failures in 200 groups, and the jobs of every kind
of ``manage.py seed_demo``. Then it asks for each page of the admin as a superuser; with NAME, only
for those with this text in their name. It prints the processor time of the server's process, the time that
the statements take, how many there are, and the longest one. It fails if a page needs more than PAGE
milliseconds of processor time. What the button "Count them all" does may take up to COUNT, a search that
finds the oldest job by an argument without an index up to SEARCH, and one that finds nothing up to VAIN.

Without DATABASE_URL, the server ends with the program. Its data stay in ``var/benchmarks`` for a run with -1.

Plans have no parallel workers here, because their processor time would not be counted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlencode

from benchmarks.bench import execute, rows, set_up
from benchmarks.console_queries import PAGE, fill, measure

ROUNDS = 3
COUNT = 3000.0 + 3 * PAGE  # its statement ends after three seconds, and a glance follows
SEARCH = 2000.0
VAIN = SEARCH + 1000.0  # after two seconds, it reads the window to its end, which takes up to a second
DEMO = 20_000

Page = tuple[str, float, Callable[[], Any]]

#: Jobs of each kind: what to call it, and how to find one.
_JOBS = {
    "pending, due": "status = 'pending' AND run_after < now() AND queue_name = 'queue0' ORDER BY run_after",
    "pending, last in its queue":
        "status = 'pending' AND run_after < now() AND queue_name = 'queue0'"
        " ORDER BY priority, run_after DESC",
    "pending, later": "status = 'pending' AND run_after > now() AND queue_name = 'queue0'",
    "retry": "status = 'retry' AND queue_name = 'queue3'",
    "running": "status = 'running'",
    "blocked, last in line": "status = 'blocked' AND limit_key = 'key7' ORDER BY wait_position DESC",
    "blocked by a limit": "status = 'blocked' AND queue_name LIKE 'demo-%' AND wait_position IS NOT NULL",
    "blocked by a job": "status = 'blocked' AND waiting_reason LIKE 'waits for job%'",
    "done": "shelf = 3 AND status = 'done'",
    "failed": "shelf = 9 AND status = 'failed' AND queue_name = 'demo-orders'",
    "cancelled": "shelf > 0 AND status = 'cancelled'",
    "in a batch": "shelf > 0 AND batch IS NOT NULL",
}  # fmt: skip


def main(finished: int, waiting: int, tasks: int, only: str) -> None:
    """Fill the tables, measure, and print the results."""
    set_up("benchmarks.console_settings")
    if finished >= 0:
        fill(finished, waiting, tasks, fill_more)
    keep_workers_alive()
    execute("SET max_parallel_workers_per_gather = 0")
    over = [
        name for name, limit, call in pages()
        if only in name and not measure(name, limit, call, rounds_of=ROUNDS, names_longest=True)
    ]  # fmt: skip
    if over:
        raise SystemExit(f"over the limit: {', '.join(over)}")


def fill_more() -> None:
    """Insert groups of failures with their counts, and the demonstration."""
    from example_project.demo.shop.seed import seed

    execute("TRUNCATE pgqueue_failure_group, pgqueue_failure_count, pgqueue_failure_note")
    execute(
        "INSERT INTO pgqueue_failure_group (fingerprint, error_class, message, traceback, sample_job,"
        " failed, retried, first_seen, last_seen, tasks, versions)"
        " SELECT md5(n::text), 'shop.Error' || n, 'no order ' || n, repeat('a line of the traceback', 200),"
        " n, 1000, 1000, now() - interval '30 days', now(), ARRAY['shop.tasks.task' || n % 100], '{1}'"
        " FROM generate_series(1, 200) AS n"
    )
    for span, step, count in (("quarter", "15 minutes", 192), ("hour", "1 hour", 720), ("day", "1 day", 90)):
        execute(
            "INSERT INTO pgqueue_failure_count (span, start, fingerprint, task_path, queue_name, version,"
            " failed, retried)"
            f" SELECT '{span}', date_bin('{step}', now(), 'epoch') - n * interval '{step}', md5(kind::text),"
            f" 'shop.tasks.task' || kind % 100, 'queue' || kind % 10, '1', 3, 5"
            f" FROM generate_series(0, {count - 1}) AS n, generate_series(1, 200) AS kind"
        )
    seed("default", DEMO)
    execute(
        "UPDATE pgqueue_job_live SET kwargs = '{\"order_id\": 17}' WHERE id ="
        " (SELECT min(id) FROM pgqueue_job_live WHERE status = 'pending')"
    )


def keep_workers_alive() -> None:
    """Write heartbeats, which an earlier run may have left long ago."""
    from example_project.demo.shop.seed import keep_alive

    execute("UPDATE pgqueue_worker SET heartbeat_at = now() + interval '1 hour' WHERE host = 'app'")
    keep_alive("default")


def pages() -> Iterator[Page]:
    """Yield each page, with its limit in milliseconds."""
    from django.contrib.auth.models import User
    from django.test import Client
    from django.urls import reverse

    client = Client()
    user, _made = User.objects.get_or_create(username="root", is_staff=True, is_superuser=True)
    client.force_login(user)

    def url(page: str, *arguments: Any) -> str:
        return reverse(f"admin:django_pgqueue_{page}", args=arguments)

    def get(name: str, address: str, limit: float = PAGE, **query: Any) -> Page:
        return name, limit, partial(ask, client.get, f"{address}?{urlencode(query)}" if query else address)

    jobs = url("job_changelist")
    yield get("start of the admin", "/admin/")
    yield from (get(f"overview, {span}", url("job_overview"), span=span) for span in ("1h", "24h", "7d"))
    yield from (get(f"overview, part {part}", url("job_overview"), part=part) for part in ("now", "charts"))
    yield from (get(f"jobs, {words(query)}", jobs, **query) for query in lists())
    for term in ("kwargs.order_id=17", "no such text"):
        yield get(f"jobs, all of {term}", jobs, SEARCH if "=" in term else VAIN, q=term, p="first")
    yield get("jobs, all of a task with none", jobs, SEARCH, task="none.there", p="first")
    for kind, condition in _JOBS.items():
        pk = some("pgqueue_job", condition)
        yield get(f"job {kind}", url("job_change", pk))
    [pk] = rows(
        "SELECT id FROM pgqueue_job_live WHERE queue_name = 'demo-flows' AND batch IS NOT NULL LIMIT 1"
    )[0]
    yield get("workflow of a job", url("job_workflow", pk))
    yield get("form of a copy", url("job_clone", pk))
    yield get(
        "progress of running jobs", url("job_progress"), id=some("pgqueue_job_live", "status = 'running'")
    )
    for span in ("1h", "24h", "7d", "30d"):
        yield get(f"failures, {span}", url("job_failures"), span=span)
        for fingerprint in (
            "c4ca4238a0b923820dcc509a6f75849b",
            some("pgqueue_failure_group", "tasks && '{demoshop.orders.ship}'", "fingerprint"),
        ):
            yield get(f"a group of failures, {span}", url("job_failure", fingerprint), span=span)
    yield get("failures of a queue", url("job_failures"), queue="queue1")
    yield get("failures of a task", url("job_failures"), task="shop.tasks.task1")
    yield get("failures that are muted", url("job_failures"), muted=1)
    yield get("queues", url("queue_changelist"))
    yield get("workers", url("worker_changelist"))
    yield get("worker", url("worker_change", 3))
    worker = some("pgqueue_worker", "host = 'demo-app-1'")
    yield get("worker of the demonstration", url("worker_change", worker))
    for span in ("1h", "24h", "7d"):
        yield get(f"queue, {span}", url("queue_change", "queue0"), span=span)
        yield get(f"queue with settings, {span}", url("queue_change", "demo-orders"), span=span)
        yield get(f"tasks, {span}", url("jobstat_changelist"), span=span)
        yield get(f"tasks, {span}, of a queue", url("jobstat_changelist"), span=span, queue="queue0")
        yield get(f"task, {span}", url("jobstat_task", "shop.tasks.task1"), span=span)
        yield get(
            f"task of the demonstration, {span}", url("jobstat_task", "demoshop.orders.ship"), span=span
        )
    yield get("database", url("jobstat_database"))
    yield get("database, with statements", url("jobstat_database"), statements=1)
    for model in ("jobbatch", "schedule", "limit", "pause"):
        yield get(f"list of {model}", url(f"{model}_changelist"))
        key = {"jobbatch": "id", "schedule": "name", "limit": "name", "pause": "id"}[model]
        table = f"pgqueue_{model.removeprefix('job')}"
        yield get(f"page of {model}", url(f"{model}_change", some(table, "true", key)))
        yield (
            get(f"form of {model}", url(f"{model}_add"))
            if model in {"limit", "pause", "schedule"}
            else get("workflow of a batch", url("jobbatch_workflow", some("pgqueue_batch", "true")))
        )
    for action, query in confirmations():
        yield confirmation(client, f"{jobs}?{urlencode(query)}", action, words(query))
    for action, query in counts():
        yield confirmation(client, f"{jobs}?{urlencode(query)}", action, words(query), count="all")


def lists() -> Iterator[dict[str, Any]]:
    """Yield the filters and searches of the list of jobs."""
    from django_pgqueue.models.job import Status

    yield {}
    statuses = [status.value for status in Status]
    for status in statuses:
        yield {"status": status}
        yield {"status": status, "queue": "queue0"}
        yield {"status": status, "queue": "queue1"}
        yield {"status": status, "task": "shop.tasks.task1"}
        yield {"status": status, "task": "none.there"}
    for status in ("done", "failed", "cancelled", ""):
        for period in ("hour", "day", "week"):
            yield {"finished": period, **({"status": status} if status else {})}
    yield {"queue": "queue0"}
    yield {"queue": "none"}
    yield {"task": "shop.tasks.task1"}
    yield {"task": "none.there"}
    yield {"queue": "queue0", "task": "shop.tasks.task10", "finished": "day"}
    worker = some("pgqueue_job_live", "status = 'running'", "worker")
    for status in ("", "running", "done", "failed"):
        yield {"worker": worker, **({"status": status} if status else {})}
    for span in ("hour", "..2020-01-01"):
        yield {"enqueued": span}
        yield {"finished": span, "status": "done"}
    fingerprint = some("pgqueue_job_kept", "error_fingerprint <> ''", "error_fingerprint")
    batch = some("pgqueue_batch", "true")
    number = some("pgqueue_job_past_3", "true")
    for term in (str(number), "key:key7", f"batch:{batch}", f"fingerprint:{fingerprint}"):
        yield {"q": term}
    for term in ("task1", "no such text", "kwargs.order_id=17"):
        yield {"q": term}
        yield from ({"q": term, "status": status} for status in statuses)


def confirmations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield actions on all jobs that match a filter."""
    yield "cancel_jobs", {}
    yield "retry_jobs", {}
    yield "cancel_jobs", {"status": "pending"}
    yield "run_now_jobs", {"status": "pending"}
    yield "edit_jobs", {"status": "pending"}
    yield "cancel_jobs", {"status": "pending", "queue": "queue0"}
    yield "cancel_jobs", {"status": "pending", "task": "shop.tasks.task10"}
    yield "cancel_jobs", {"status": "running"}
    yield "cancel_jobs", {"status": "blocked"}
    yield "retry_jobs", {"status": "retry"}
    yield "retry_jobs", {"status": "failed"}
    yield "retry_jobs", {"status": "failed", "task": "shop.tasks.task1"}
    yield "retry_jobs", {"status": "done"}
    yield "retry_jobs", {"finished": "day"}
    yield "cancel_jobs", {"q": "key:key7"}
    yield "retry_jobs", {"q": "task1"}
    yield "retry_jobs", {"q": "task1", "status": "failed"}


def counts() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield actions on jobs of which all are counted."""
    yield "cancel_jobs", {}
    yield "cancel_jobs", {"status": "pending", "task": "shop.tasks.task10"}
    yield "retry_jobs", {"q": "task1"}


def confirmation(client: Any, address: str, action: str, which: str, **button: str) -> Page:
    """Return the page that asks for confirmation. It changes nothing."""
    data = {"action": action, "_selected_action": ["1"], "select_across": "1", "index": "0", **button}
    name = "count" if button else "confirm"
    return f"{name} {action}, {which}", COUNT if button else PAGE, partial(ask, client.post, address, data)


def ask(method: Callable[..., Any], *arguments: Any) -> None:
    """Ask for a page. An action must not run: it must ask."""
    from django.db import connection

    response = method(*arguments)
    if response.status_code != 200:
        raise SystemExit(
            f"{arguments[0]}: status {response.status_code} {response.headers.get('Location', '')}"
        )
    assert not connection.in_atomic_block


def some(table: str, condition: str, column: str = "id") -> Any:
    """Return a value of a row that meets a condition."""
    found = rows(f"SELECT {column} FROM {table} WHERE {condition} LIMIT 1")
    if not found:
        raise SystemExit(f"There is no row of {table} with {condition}.")
    return found[0][0]


def words(query: dict[str, Any]) -> str:
    """Return the query in words."""
    return " ".join(f"{name}={value}" for name, value in query.items()) or "all"


if __name__ == "__main__":
    texts = [argument for argument in sys.argv[1:] if not argument.lstrip("-").isdecimal()]
    given = [int(argument) for argument in sys.argv[1:] if argument not in texts]
    sizes = given + [10_000_000, 1_000_000, 100][len(given) :]
    main(sizes[0], sizes[1], sizes[2], "".join(texts))
