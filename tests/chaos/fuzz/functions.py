"""The functions of the schema, found by introspection, and random parameters for them.

All values are text, as in SQL. Most parameters of a call are sensible, by their names, so that it comes
through the first checks of the function. The others are what nobody has thought of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import psycopg
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

from tests.support.jobs import add, register, sql_claim, value
from tests.support.sessions import Connection

FIND = """
    SELECT pro.proname, pro.prokind = 'p',
        (coalesce(pro.proargnames, '{}'))[:pro.pronargs],
        ARRAY(SELECT arg::regtype::text FROM unnest(pro.proargtypes::oid[]) WITH ORDINALITY AS given (arg, n)
            ORDER BY n)
    FROM pg_proc AS pro
    WHERE pro.proname ~ '^_?pgqueue' AND pro.prokind IN ('f', 'p') AND pro.prorettype <> 'trigger'::regtype
        AND pro.pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'pgqueue_job'::regclass)
    ORDER BY pro.proname
"""
COLUMNS = """
    SELECT atttypid::regtype::text FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


class Function(NamedTuple):
    """A function or a procedure, and the names and types of its parameters."""

    name: str
    is_procedure: bool
    parameters: list[str]
    types: list[str]

    @property
    def is_public(self) -> bool:
        """Whether it has a stable name, for users."""
        return not self.name.startswith("_")

    @property
    def takes_leases(self) -> bool:
        """Whether jobs are named together with their leases. A wrong lease must not change the job."""
        return any("lease" in name for name in self.parameters) and "bigint" in "".join(self.types)

    def statement(self) -> str:
        """Return the call, with a placeholder for each parameter."""
        given = ", ".join(f"%s::{each}" for each in self.types)
        return f"CALL {self.name}({given})" if self.is_procedure else f"SELECT * FROM {self.name}({given})"


NUMBERS = ["0", "1", "-1", "2", "100", "20"]
WORDS = [
    "", "x", "default", "*", "queue:default", "task", "queue", "all", "tests.app.tasks.noop", "a.b/key",
    "x" * 1000, "é\u2028'\"\\;--", "%s %", "{}", "null", "done", "failed", "cancelled", "retry", "snooze",
    "wait", "release", "unknown", "paused", "pending", "running", "blocked", "rerun", "fail", "hold",
    "cancel", "run", "skip", "stop", "replace", "waiting", "live", "minute", "hour", "day", "quarter",
    "total", "pgqueue_job",
]  # fmt: skip
OPTIONS: Mapping[str, Sequence[Any]] = {
    "unique_key": ["u", "", 5, None], "unique_scope": ["waiting", "live", "x", None],
    "unique_window": [1, 0, -1, 1e300, "x", None],
    "on_conflict": ["existing", "replace", "earliest", "raise", None],
    "limit_key": ["a.b/key", "", None, []], "group_key": ["g", "", 3, None],
    "after": [[], [1], [None], "x", None, 1], "if_failed": ["hold", "cancel", "run", "x", None],
    "batch": [1, None, "x", -1, 1.5], "max_json_bytes": [0, 1 << 40, "x", None, 1.5],
    "context": [None, {}, [], {"trace": {"a": 1}}, {"user": []}], "after_items": [[0], [None], "x", [-1]],
    "class": ["E", 1, None], "message": ["m", {}], "traceback": ["t", 1], "version": ["v", []],
    "done": [1, "x"], "at": ["x", "2026-01-01"],
}  # fmt: skip
TIMES = [
    "infinity", "-infinity", "2026-01-01", "4713-01-01 BC", "294276-12-31", "0001-01-01", "now", "tomorrow",
]  # fmt: skip
SPANS = ["0", "1 second", "-1 day", "100 years", "178000000 years", "7 days"]
REALS = ["0", "1", "-1", "0.5", "1e300", "-1e300", "NaN", "Infinity", "-Infinity", "3155760000"]
SENSIBLE: Mapping[str, str | None] = {
    "task_path": "tests.app.tasks.noop", "args": "[]", "kwargs": "{}", "metadata": "{}",
    "queue_name": "default", "priority": "0", "name": "default", "kind": "queue", "host": "h", "slots": "1",
    "how": "stop", "at_most": "3", "outcome": "snooze", "default_max_attempts": "5", "queues": "{}",
    "done": "1", "seconds": "5", "keep_errors": "20", "running": "2", "concurrency": "2", "reason": "r",
    "author": "a", "rate": "2", "starts": "2", "per": "1 second", "burst": "1", "limit": "10",
    "crash_limit": "3", "pid": "1", "version": "v", "lease": "30", "heartbeat": "1", "count": "1",
    "delay": "0", "started_ago": "1", "duration": "1",
    **dict.fromkeys(
        ("max_attempts", "timeout", "on_lost", "expires_at", "run_after", "total", "until", "on_full",
         "max_bytes", "key")
    ),
}  # fmt: skip
"""Sensible values of parameters, by their names without ``p_``."""


class Values:
    """Makes values of any type of the schema."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._made: dict[tuple[str, bool], st.SearchStrategy[str | None]] = {}
        self.ids: list[int] = []
        """The jobs that calls may change."""
        self.others: list[int] = []
        """The jobs that calls may name, but not change."""
        self.tokens: dict[str, str] = {}
        """Sensible values of parameters that are a bigint: the ids and the lease of a job that may change."""

    def parameters(self, function: Function) -> st.SearchStrategy[tuple[str | None, ...]]:
        """Return the strategy for the parameters of a function: sensible ones, of which some are replaced."""
        return st.tuples(*(
            self._given(name.removeprefix("p_"), kind, function.takes_leases)
            for name, kind in zip(function.parameters, function.types, strict=True)
        ))  # fmt: skip

    def _given(self, name: str, kind: str, names_others: bool) -> st.SearchStrategy[str | None]:
        sensible = self.tokens if kind == "bigint" else SENSIBLE
        if name in sensible:
            return st.one_of(*3 * [st.just(sensible[name])], self.of(kind, names_others))
        return self.of(kind, names_others)

    def of(self, kind: str, names_others: bool) -> st.SearchStrategy[str | None]:
        """Return the strategy for a type: NULL, and what it can hold."""
        if (kind, names_others) not in self._made:
            self._made[kind, names_others] = st.none() | self._some(kind, names_others)
        return self._made[kind, names_others]

    def _some(self, kind: str, names_others: bool) -> st.SearchStrategy[str]:
        if kind.endswith("[]"):
            return st.lists(self.of(kind[:-2], names_others), max_size=4).map(_array)
        if kind.startswith("pgqueue_"):
            columns = self._connection.execute(COLUMNS, (kind,)).fetchall()
            return st.tuples(*(self.of(each, names_others) for (each,) in columns)).map(_row)
        if kind == "jsonb":
            return _documents().map(json.dumps)
        ids = [str(pk) for pk in (*self.ids, *(self.others if names_others else ()))]
        scalars: Mapping[str, Sequence[str]] = {
            "smallint": [*NUMBERS, "32767", "-32768"],
            "integer": [*NUMBERS, "2147483647", "-2147483648"],
            "bigint": [*NUMBERS, *ids, *ids, "9223372036854775807", "-9223372036854775808"],
            "boolean": ["true", "false"],
            "timestamp with time zone": TIMES,
            "interval": SPANS,
            "double precision": REALS,
            "regclass": ["pgqueue_job", "pg_class", "0"],
            **dict.fromkeys(("text", "character varying"), WORDS),
        }
        assert kind in scalars, f"please say how to make a value of the type {kind}"
        return st.sampled_from(scalars[kind])


def _documents() -> st.SearchStrategy[Any]:
    """Return JSON of every shape; objects have the names of options."""
    scalars = st.sampled_from([None, True, 0, -1, 1.5, 1e300, 2**70, "", "x", "done", "é\u2028"])
    options = st.lists(
        st.sampled_from(sorted(OPTIONS)).flatmap(
            lambda name: st.tuples(st.just(name), st.sampled_from(OPTIONS[name]))
        ),
        max_size=4,
    ).map(dict)
    return st.recursive(
        scalars | options,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["x", "id", *OPTIONS]), inner, max_size=3)
        ),
        max_leaves=4,
    )


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _array(items: Sequence[str | None]) -> str:
    return "{" + ",".join("NULL" if item is None else _quoted(item) for item in items) + "}"


def _row(items: Sequence[str | None]) -> str:
    return "(" + ",".join("" if item is None else _quoted(item) for item in items) + ")"


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
        self.functions = [Function(*row) for row in connection.execute(FIND).fetchall()]
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
