"""``dev.py test --pooler``: a pgbouncer in transaction mode between everything and the server.

All aliases, and so all commands, use the pooler. It hands each transaction to another session than the one
before, so that nothing can rely on a session. Only the connections that tests open beside (``open_raw``) are
direct: they hold locks, and play somebody else. The databases are made and removed without the pooler.

After each test, no session of the pooler may have a setting, a lock, a channel or anything else that a client
has left there (``Leftovers``): a worker that relies on its session also works by chance, or recovers.

If Django is to open sessions with a role or a search path of their own, the test is skipped (``alias``): a
pooler in transaction mode does not keep them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from .sessions import DIRECT, Connection, open_raw

if TYPE_CHECKING:
    from .poolers import Pooler

NEEDS_A_SESSION: dict[str, list[str]] = {
    "no test of the queue: it needs no database, or a server of its own": [
        "tests/benchmarks/",
        "tests/project/",
    ],
    "it is about workers that are notified": [
        "tests/races/test_enqueue_and_sleep.py",
        "tests/worker/executor/test_interrupts.py::test_jobs_that_are_cancelled_stop",
        "tests/worker/test_run.py::test_an_idle_worker",
        "tests/worker/producer/test_idle.py",
        # The pause lasts as long as the time between two polls.
        "tests/worker/producer/test_pauses.py::test_a_pause_ends_by_itself",
        "tests/worker/producer/test_pauses.py::test_a_running_worker_hears_of_a_pause",
        "tests/worker/supervisor/test_heartbeat.py::test_a_supervisor_wakes_for_the_next_run",
        "tests/worker/supervisor/test_heartbeat.py::test_a_change_of_a_schedule_is_heard",
        "tests/worker/supervisor/test_heartbeat.py::test_news_that_arrive_while_a_statement_runs",
        "tests/worker/supervisor/test_heartbeat.py::test_a_lost_session_is_replaced_and_listens",
    ],
    "it is about prepared statements": [
        "tests/plans/test_statements.py::test_plans_that_were_made_on_an_empty_table",
        "tests/plans/test_statements.py::test_workers_and_supervisors_plan_anew",
        "tests/postgres/test_prepared.py",
        "tests/worker/producer/test_exchange.py::test_a_worker_has_few_prepared_statements",
        "tests/worker/producer/test_exchange.py::test_the_type_of_an_answer_changes",
    ],
    "it is about claims that overlap with reports, which they do only on a direct connection": [
        "tests/worker/producer/test_exchange.py::test_a_drain_of_short_jobs_overlaps",
        "tests/worker/producer/test_exchange.py::test_all_jobs_run_once_whatever_their_outcome_and_policy",
        "tests/worker/producer/test_exchange.py::test_something_happens_when_the_first_answer",
    ],
    "it is about the lock that shows that a worker is alive, which belongs to a session": [
        "tests/worker/test_one_process.py::test_a_burst_runs_jobs_on_this_thread",
        "tests/worker/test_sessions.py::test_a_worker_says_whether_it_holds_its_lock",
        "tests/worker/test_sessions.py::test_a_worker_whose_last_session_ends_late",
        "tests/worker/test_sessions.py::test_the_last_session_of_a_worker_is_ended",
        "tests/worker/test_sessions.py::test_a_session_that_does_not_end",
        "tests/worker/test_sessions.py::test_a_session_asks_once",
    ],
    "it is about a direct connection that is cut off": [
        "tests/races/test_recovery.py::test_a_claim_of_the_last_session"
    ],
    "it is about what a worker sets for its session": [
        "tests/postgres/test_session.py::test_both_ends_find_out",
        "tests/postgres/test_session.py::test_a_session_that_cannot_be_set_up",
    ],
    "it finds Django's session by its process id, or by its application_name": [
        "tests/worker/executor/test_async.py::test_a_job_that_holds_something_keeps_its_thread",
        "tests/worker/executor/test_connections.py",
    ],
    "it ends sessions of the server, which the pooler replaces without a word": [
        "tests/management/test_top.py::test_on_a_terminal",
        "tests/worker/producer/test_connection.py::test_the_result_of_a_job_that_ran_meanwhile",
        "tests/worker/producer/test_connection.py::test_nothing_is_lost_and_nothing_runs_twice",
        "tests/worker/producer/test_connection.py::test_jobs_that_end_while_the_server_is_away",
        "tests/worker/producer/test_connection.py::test_a_worker_that_is_stopped_while_the_server",
        "tests/worker/supervisor/test_heartbeat.py::test_a_database_that_does_not_answer",
        "tests/worker/supervisor/test_heartbeat.py::test_a_supervisor_tries_again_at_once_and_beats",
        "tests/worker/supervisor/test_heartbeat.py::test_a_supervisor_tries_at_least_once_each_heartbeat",
        "tests/worker/supervisor/test_heartbeat.py::test_a_supervisor_whose_prepared_statements_are_gone",
        "tests/jobs/test_join.py::test_the_server_ends_the_connections",
    ],
    "its roles log in by themselves, and this pooler logs in as one user": [
        "tests/docs/test_deploying.py::test_the_logins_of_the_page",
        "tests/processes/test_in_tests.py::test_a_burst_runs_what_is_due_in",
        "tests/roles/",
    ],
}
"""Tests that are not run through a pooler, by the beginning of their names, and why."""


def skip_what_needs_a_session(items: list[pytest.Item]) -> None:
    """Skip the tests that are about a direct connection."""
    reasons = {name: reason for reason, names in NEEDS_A_SESSION.items() for name in names}
    for item in items:
        for name, reason in reasons.items():
            if item.nodeid.startswith(name):
                item.add_marker(pytest.mark.skip(reason=f"not through a pooler: {reason}"))


def skip_what_is_set_for_a_session(changes: dict[str, Any]) -> None:
    """Skip the current test if everything goes through a pooler, and these keys of an alias in DATABASES need
    a session: it would have neither its role nor its search path, or other clients would have them, too.
    """
    if DIRECT and changes.get("OPTIONS", {}).keys() & {"assume_role", "options"}:
        pytest.skip("not through a pooler: a role or a search path is set for a session")


#: What belongs to a session and outlives a transaction. Left out: what pgbouncer itself sets, and what each
#: transaction begins with anew.
_LEFT = """
    SELECT pg_backend_pid(), ARRAY(
        SELECT 'SET ' || name FROM pg_settings
        WHERE source = 'session' AND name NOT IN (
            'application_name', 'client_encoding', 'DateStyle', 'IntervalStyle', 'TimeZone',
            'standard_conforming_strings',
            'transaction_deferrable', 'transaction_isolation', 'transaction_read_only')
        UNION ALL SELECT 'SET ROLE ' || current_user WHERE current_user <> session_user
        UNION ALL SELECT 'LISTEN ' || channel FROM pg_listening_channels() AS channel
        UNION ALL SELECT 'PREPARE ' || statement FROM pg_prepared_statements
        UNION ALL SELECT 'lock ' || mode FROM pg_locks
            WHERE locktype = 'advisory' AND pid = pg_backend_pid()
        UNION ALL SELECT 'temporary table ' || relname FROM pg_class WHERE relnamespace = pg_my_temp_schema()
    )
"""
_IDLE = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'idle' AND pid <> pg_backend_pid()
"""


class Leftovers:
    """A plugin that looks into the sessions of the pooler after each test. They take turns, so as many
    statements as there are idle sessions see each of them.
    """

    def __init__(self, direct: Connection, pooled: Connection) -> None:
        self._direct = direct
        self._pooled = pooled

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Fail after a test that has left something, and end that session, so that no other test finds it."""
        yield
        if self._direct.closed:  # it was the last test
            return
        left = self._look()
        assert not left, f"left in sessions of the server, where other clients find it: {left}"

    def _look(self) -> list[str]:
        [count] = self._direct.execute(_IDLE).fetchone() or [0]
        found: list[str] = []
        for _ in range(count):
            pid, left = self._pooled.execute(_LEFT).fetchone() or (0, [])
            if left:
                found += left
                self._direct.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        return found


@contextmanager
def leftovers_found(plugins: pytest.PytestPluginManager, pooler: Pooler) -> Iterator[None]:
    """Let ``Leftovers`` look at each test until the end of the block."""
    with open_raw() as direct, pooler.connect() as pooled:
        plugin = Leftovers(direct, pooled)
        plugins.register(plugin)
        try:
            yield
        finally:
            plugins.unregister(plugin)
