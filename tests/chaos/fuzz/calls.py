"""Random calls of the functions of the schema, and what is wrong with their answers."""

from __future__ import annotations

import psycopg
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.support.foreign import register, sql_claim
from tests.support.jobs import add, value
from tests.support.sessions import Connection

from .functions import Function, Values, find_functions

__all__ = ["Calls"]

OURS = ("22023", "23Q", "23505", "25000", "55P03")
"""What the codes of our own errors begin with. Their messages begin with "pgqueue: "."""
TAKE_SQL = {
    "_pgqueue_estimate",  # a condition
    "_pgqueue_attach_payload",  # a table
}
"""Internal functions that put a parameter into a statement."""
MAY_CHANGE_OTHERS = {
    "pgqueue_progress",  # for which no lease means any lease, as documented
    "_pgqueue_recover_dead",  # whose parameters say which workers are dead
}
SEE = """
    SELECT jsonb_agg(to_jsonb(job) ORDER BY job.id) || (
        SELECT jsonb_agg(to_jsonb(worker)) FROM pgqueue_worker AS worker
        WHERE worker.id IN (
            SELECT held.worker FROM pgqueue_job_live AS held WHERE held.id = ANY (%(others)s)))
    FROM pgqueue_job AS job WHERE job.id = ANY (%(others)s)
"""


class Calls:
    """Calls on a connection in autocommit mode. Each is rolled back, so the jobs stay as they are."""

    def __init__(self, connection: Connection) -> None:
        self.functions = find_functions(connection)
        self._connection = connection
        self._values = Values(connection)
        value(connection, "SELECT setval('pgqueue_job_id_seq', 1000)")  # ids that are not guessed
        self._values.others = self._enqueue_others()
        self._enqueue_victims()
        connection.execute("UPDATE pgqueue_worker SET heartbeat_at = clock_timestamp() + interval '1 day'")
        self._before = self._see()

    def make(self, *, seed: int | None, internal: int, public: int) -> list[str]:
        """Call each function so often, and return what is wrong. Without a seed, the calls are the same."""
        return [
            problem
            for function in self.functions
            for problem in self._fuzz(function, public if function.is_public else internal, seed)
        ]

    def _enqueue_others(self) -> list[int]:
        """Enqueue jobs that wait, run, are blocked, and are over. No call may change them."""
        one = self._connection
        add(one, 3, queue_name="others")
        worker = register(one, "others")
        _, failed = sql_claim(one, worker, 2)
        one.execute("CALL pgqueue_finish(%s, %s, 'failed')", (failed.id, failed.lease))
        (parent,) = add(one, queue_name="others")
        add(one, queue_name="others", options=f'{{"after": [{parent}], "unique_key": "others"}}')
        add(one, queue_name="others", options='{"limit_key": "o.o/1", "group_key": "others"}')
        return [row[0] for row in one.execute("SELECT id FROM pgqueue_job").fetchall()]

    def _enqueue_victims(self) -> None:
        """Enqueue jobs that calls may change. One of them runs."""
        worker = register(self._connection, "default")
        ids = add(self._connection, 4, options='{"limit_key": "a.b/key"}')
        ids += add(self._connection, options='{"unique_key": "u"}')
        (running,) = sql_claim(self._connection, worker, 1)
        self._values.ids = ids
        self._values.tokens = {"id": str(running.id), "lease": str(running.lease), "worker": str(worker)}

    def _fuzz(self, function: Function, count: int, number: int | None) -> list[str]:
        problems: dict[str, str] = {}

        @given(self._values.parameters(function))
        def call(parameters: tuple[str | None, ...]) -> None:
            if problem := self._call(function, parameters):
                problems.setdefault(problem[:30], f"{function.name}{parameters}: {problem}")

        if number is not None:
            call = seed(number)(call)
        settings(
            max_examples=count, deadline=None, database=None, phases=[Phase.generate],
            derandomize=number is None, suppress_health_check=list(HealthCheck),
        )(call)()  # fmt: skip
        return list(problems.values())

    def _call(self, function: Function, parameters: tuple[str | None, ...]) -> str:
        """Call a function, and return what is wrong with its answer."""
        self._connection.execute("BEGIN")
        try:
            self._connection.execute(function.statement(), parameters)
            self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            is_harmless = self._see() == self._before or function.name in MAY_CHANGE_OTHERS
        except psycopg.Error as error:
            return "" if _is_clear(function, error) else f"{error.sqlstate} {error}"
        finally:
            self._connection.execute("ROLLBACK")
        return "" if is_harmless else "has changed other jobs"

    def _see(self) -> object:
        return self._connection.execute(SEE, {"others": self._values.others}).fetchone()


def _is_clear(function: Function, error: psycopg.Error) -> bool:
    """Return whether users know what to do. The callers of internal functions are to give valid data."""
    state = error.sqlstate or ""
    if state.startswith(OURS) and str(error).startswith("pgqueue: "):
        return True
    if function.is_public:
        return False
    return state[:2] in ("22", "23") or (function.name in TAKE_SQL and state[:2] in ("42", "0A"))
