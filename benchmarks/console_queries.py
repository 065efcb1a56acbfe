"""Measure what the figures cost: ``python -m benchmarks.console_queries [FINISHED [WAITING [TASKS]]]``.

This uses a durable server (the one that DATABASE_URL names, or one of its own). It makes FINISHED jobs in the
history (default: 10,000,000), WAITING live ones (1,000,000) in ten queues, and the statistics of TASKS tasks
(100) that ran in every minute. Then it prints how long the database works on each figure of
``django_pgqueue.monitoring``, which the pages of the admin are made of, on a scrape of the metrics, and on
the health check, in ROUNDS rounds: the time that passes, with the round trips, and the processor time of the
server's process. It fails if a scrape takes more than SCRAPE milliseconds of processor time, or
anything else more than PAGE. If the server is on another machine, the time that passes counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.bench import empty, execute, one, set_up

ROUNDS = 9
SCRAPE = 10.0  # milliseconds
PAGE = 100.0

_TASKS = Path(__file__).parents[1] / "django_pgqueue/admin/tasks.sql"
#: One row in each of 24 classes, which is the widest histogram.
_HISTOGRAM = "array_fill(10::bigint, '{24}')"
_COUNTS = f"100, 1, 2, 0, {_HISTOGRAM}, {_HISTOGRAM}, 12.5, 30.0"
_COLUMNS = (
    "queue_name, task_path, done, failed, retried, cancelled, wait_histogram, run_histogram, wait_seconds,"
    " run_seconds"
)


def main(finished: int, waiting: int, tasks: int) -> None:
    """Fill the tables, measure, and print the results."""
    set_up()
    if finished < 0:  # measure what an earlier run has left
        return report()
    fill(finished, waiting, tasks)
    return report()


def fill(finished: int, waiting: int, tasks: int, more: Callable[[], Any] = lambda: None) -> None:
    """Replace everything that is in the tables, with ``more`` at the end."""
    empty()
    execute("TRUNCATE pgqueue_stat_rollup")
    began = perf_counter()
    fill_history(finished)
    fill_live(waiting)
    fill_statistics(tasks)
    more()
    execute("VACUUM ANALYZE")
    sizes = one("SELECT pg_size_pretty(sum(pg_total_relation_size(oid))) FROM pg_class WHERE relname LIKE"
                " 'pgqueue%' AND relkind = 'r'")  # fmt: skip
    print(f"{finished} finished, {waiting} waiting, {tasks} tasks: {sizes}, {perf_counter() - began:.0f} s")


def report() -> None:
    """Measure everything."""
    over = [name for name, limit, call in figures() if not measure(name, limit, call)]
    if over:
        raise SystemExit(f"over the limit: {', '.join(over)}")


def fill_history(finished: int) -> None:
    """Insert done jobs into the ring, and one failed job for each twenty of them into the kept leaf."""
    execute("SET session_replication_role = replica")
    for shelf in range(1, 9):
        insert_over(f"pgqueue_job_past_{shelf}", shelf, "done", finished // 8 - finished // 160)
    insert_over("pgqueue_job_kept", 9, "failed", finished // 20)
    execute("SET session_replication_role = origin")


def insert_over(table: str, shelf: int, status: str, count: int) -> None:
    """Insert finished jobs."""
    execute(
        f"INSERT INTO {table} (shelf, status, queue_name, task_path, finished_at) SELECT {shelf}, '{status}',"
        f" 'queue' || n % 10, 'shop.tasks.task' || n % 100, clock_timestamp() - n * interval '60 ms'"
        f" FROM generate_series(1, {count}) AS n"
    )


def fill_live(waiting: int) -> None:
    """Insert waiting jobs, half of them due, half of all in one queue, and 200 that run on 20 workers."""
    execute("SET session_replication_role = replica")
    execute(
        "INSERT INTO pgqueue_job_live (queue_name, task_path, priority, status, run_after, limit_key,"
        " wait_position, group_key, waiting_reason)"
        " SELECT CASE WHEN n % 2 = 0 THEN 'queue0' ELSE 'queue' || n % 10 END, 'shop.tasks.task' || n % 100,"
        " (n % 3) * 10, CASE WHEN n % 20 = 7 THEN 'blocked' WHEN n % 50 = 3 THEN 'retry' ELSE 'pending' END,"
        " clock_timestamp() + (n % 2000 - 1000) * interval '1 minute',"
        " CASE WHEN n % 20 = 7 THEN 'key' || n % 1000 END, CASE WHEN n % 20 = 7 THEN n END,"
        " CASE WHEN n % 10 = 5 THEN 'tenant' || n % 500 END, ''"
        f" FROM generate_series(1, {waiting}) AS n"
    )
    execute(
        "INSERT INTO pgqueue_job_live (queue_name, task_path, status, worker, lease, last_attempted_at)"
        " SELECT 'queue' || n % 10, 'shop.tasks.task' || n % 100, 'running', n % 20 + 1, 1, clock_timestamp()"
        " FROM generate_series(1, 200) AS n"
    )
    execute("SET session_replication_role = origin")
    execute(
        "INSERT INTO pgqueue_worker (id, host, pid, queues, slots, version, heartbeat_at)"
        " SELECT n, 'app', n, '{}', 10, '1', clock_timestamp() + interval '1 hour'"
        " FROM generate_series(1, 20) AS n"
    )


def fill_statistics(tasks: int) -> None:
    """Insert two days of minutes, of which the last three are not rolled up, and the sums."""
    names = "'queue' || task % 10, 'shop.tasks.task' || task"
    begin = "date_trunc('minute', statement_timestamp())"  # the same in all rows of a statement
    execute(
        f"INSERT INTO pgqueue_stat (minute, rolled_up, {_COLUMNS})"
        f" SELECT {begin} - n * interval '1 minute', n > 2, {names}, {_COUNTS}"
        f" FROM generate_series(0, 2879) AS n, generate_series(1, {tasks}) AS task"
    )
    queue = "'queue' || task, ''"
    of_task, of_queue, of_all = (names, tasks), (queue, 10), ("'', ''", 1)
    for span, step, count, which, many in (
        ("minute", "1 minute", 2880, *of_all),
        ("minute", "1 minute", 2880, *of_queue),
        ("quarter", "15 minutes", 192, *of_all),
        ("quarter", "15 minutes", 192, *of_queue),
        ("quarter", "15 minutes", 192, *of_task),
        ("hour", "1 hour", 2160, *of_all),
        ("hour", "1 hour", 2160, *of_queue),
        ("hour", "1 hour", 2160, *of_task),
        ("day", "1 day", 90, *of_all),
        ("day", "1 day", 90, *of_queue),
        ("day", "1 day", 90, *of_task),
    ):
        execute(
            f"INSERT INTO pgqueue_stat_rollup (span, start, {_COLUMNS})"
            f" SELECT '{span}', date_bin('{step}', {begin}, 'epoch') - n * interval '{step}', {which},"
            f" {_COUNTS} FROM generate_series(0, {count - 1}) AS n, generate_series(1, {many}) AS task"
        )
    execute(
        f"INSERT INTO pgqueue_stat_rollup (span, start, {_COLUMNS})"
        f" SELECT 'total', 'epoch', {names}, {_COUNTS} FROM generate_series(1, {tasks}) AS task"
    )


def figures() -> list[tuple[str, float, Callable[[], Any]]]:
    """Return what is measured, each with its limit in milliseconds."""
    from prometheus_client import generate_latest

    from django_pgqueue.metrics import registry
    from django_pgqueue.monitoring.depth import depths
    from django_pgqueue.monitoring.health import health, judge, read
    from django_pgqueue.monitoring.spans import SPANS, breakdown, series, totals
    from django_pgqueue.monitoring.workers import Crew

    found: list[tuple[str, float, Callable[[], Any]]] = [
        ("scrape of the metrics", SCRAPE, lambda: generate_latest(registry(["default"]))),
        ("health check", PAGE, lambda: health("default")),
        ("depth of the queues", PAGE, lambda: depths("default")),
        ("workers", PAGE, lambda: Crew("default")),
        ("totals", PAGE, lambda: totals("default")),
        ("verdict", PAGE, lambda: judge(read("default"))),
        ("overview, by the second", PAGE, lambda: overview_now("default")),
        ("overview, the whole page", PAGE,
         lambda: (overview_now("default"), series("default", SPANS["7d"]))),
    ]  # fmt: skip
    found += pages()
    for span in SPANS.values():
        found += [
            (f"chart of {span.name}", PAGE, lambda span=span: series("default", span)),  # type: ignore[misc]
            (f"chart of {span.name}, one queue", PAGE,
             lambda span=span: series("default", span, queue="queue0")),  # type: ignore[misc]
            (f"chart of {span.name}, one task", PAGE,
             lambda span=span: series("default", span, task="shop.tasks.task1")),  # type: ignore[misc]
            (f"tasks of {span.name}", PAGE,
             lambda span=span: breakdown("default", span, "task")),  # type: ignore[misc]
        ]  # fmt: skip
    return found


def overview_now(alias: str) -> list[Any]:
    """Return what the overview reads every five seconds."""
    from django_pgqueue.models import Queue
    from django_pgqueue.monitoring.health import read
    from django_pgqueue.monitoring.spans import DAY, HOUR, breakdown

    ran = [breakdown(alias, span, "queue", most=200) for span in (HOUR, DAY)]
    return [read(alias), list(Queue.objects.using(alias).values_list("pk", flat=True)), ran]


def pages() -> list[tuple[str, float, Callable[[], Any]]]:
    """Return what the pages about tasks, queues, workers and the database read."""
    from django_pgqueue.monitoring.database import database
    from django_pgqueue.monitoring.jobs import callers, ended_by
    from django_pgqueue.monitoring.limits import limit_figures
    from django_pgqueue.monitoring.queues import one_queue, queue_figures
    from django_pgqueue.monitoring.spans import DAY, HOUR, WEEK, trends
    from django_pgqueue.tasks.registry import queues_in_use

    tasks = [f"shop.tasks.task{number}" for number in range(50)]
    found: list[tuple[str, float, Callable[[], Any]]] = [
        ("state of the database", PAGE, lambda: database("default", statements=True)),
        ("list of queues", PAGE, lambda: queue_figures("default")),
        ("list of limits", PAGE, lambda: limit_figures("default")),
        ("depth of one queue", PAGE, lambda: one_queue("default", "queue0")),
        ("names of queues", PAGE, lambda: queues_in_use("default")),
        ("names of tasks", PAGE, lambda: execute(_TASKS.read_text() % {"window": 5000})),
        ("what a worker has ended", PAGE, lambda: ended_by("default", 3)),
        ("what enqueues a task", PAGE, lambda: callers("default", "shop.tasks.task1")),
    ]
    for span in (HOUR, DAY, WEEK):
        found += [
            (f"trends of {span.name}, 50 tasks", PAGE,
             lambda span=span: trends("default", span, "task", tasks)),  # type: ignore[misc]
        ]  # fmt: skip
    return found


def measure(
    name: str, limit: float, call: Callable[[], Any], *, rounds_of: int = ROUNDS, names_longest: bool = False
) -> bool:
    """Print how long the statements of a call take, and return whether the median is within the limit.

    ``names_longest``: print the longest one, too.
    """
    from django.db import connection

    rounds: list[float] = []
    longest = statements = 0.0
    slowest = ""

    def watch(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        nonlocal longest, statements, slowest
        began = perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            took = 1000 * (perf_counter() - began)
            if took > longest:
                longest, slowest = took, " ".join(str(sql).split())
            statements += 1
            rounds[-1] += took

    call()  # the first call of a session reads the catalogs and plans the statements of the functions
    pid = int(one("SELECT pg_backend_pid()"))
    worked, began = processor_time(pid), perf_counter()
    with connection.execute_wrapper(watch):
        for _ in range(rounds_of):
            rounds.append(0.0)
            call()
    whole = 1000 * (perf_counter() - began) / rounds_of
    work = None if worked is None else ((processor_time(pid) or worked) - worked) / rounds_of
    print(
        f"{name + ':':<28}{'' if work is None else f'{work:6.1f} ms of work,'}{median(rounds):7.1f} ms"
        f" ({min(rounds):.1f} to {max(rounds):.1f}), {statements / rounds_of:.0f} statements, the longest"
        f" {longest:.1f} ms, with Python {whole:.1f} ms"
        f"{chr(10) + ' ' * 28 + slowest[:200] if names_longest else ''}"
    )
    return (median(rounds) if work is None else work) <= limit


def processor_time(pid: int) -> float | None:
    """Return the milliseconds that a process of this machine has worked; None if it is on another one."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6
    except OSError:
        return None


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [10_000_000, 1_000_000, 100][len(given) :]))
