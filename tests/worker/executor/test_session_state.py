"""A statement that may change the session costs its connection. The others are told by how they begin."""

from __future__ import annotations

import pytest

from django_pgqueue.worker.executor.connections import touches_session

TOUCHES = [
    "SET search_path TO other",
    "  set\n session search_path = other",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "SET ROLE other",
    "-- a comment\nSET a.b = 1",
    "/* a; comment */ SET a.b = 1",
    "SELECT 1; SET a.b = 1",
    "BEGIN;SET a.b = 1;COMMIT",
    "RESET ALL",
    "LISTEN channel",
    "LOAD 'auto_explain'",
    "DO $$ BEGIN PERFORM 1; END $$",
    "PREPARE p AS SELECT 1",
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    "create temporary view v AS SELECT 1",
    "CREATE TABLE pg_temp.t (a int)",
    "SELECT 1 INTO TEMP t",
    "SELECT set_config('a.b', %s, false)",
    "SELECT set_config(%s, %s, %s)",
    "SELECT PG_CATALOG.SET_CONFIG('a.b', 'c', FALSE)",
    "SELECT pg_advisory_lock(%s)",
    "SELECT pg_try_advisory_lock(1, 2)",
    "SELECT pg_advisory_lock_shared(1)",
    "SELECT setseed(0.5)",
    "SELECT dblink_connect('x', 'y')",
    "SELECT " + "1, " * 5_000 + "pg_advisory_lock(1)",
]
TOUCHES_NOT = [
    'UPDATE "app_entry" SET "note" = %s',
    'INSERT INTO "t" ("set", "listen") VALUES (%s, %s) ON CONFLICT DO UPDATE SET a = 1',
    '(SELECT "t"."attempts" FROM "t") UNION (SELECT 1)',
    "/* comment */ SELECT 1;\n",
    "SET LOCAL lock_timeout = 1",
    "set  local search_path TO other",
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET CONSTRAINTS ALL IMMEDIATE",
    "SELECT set_config('app.tenant', %s, true)",
    "SELECT set_config('app.tenant', %s, TRUE) AS b",
    "SELECT pg_advisory_xact_lock(1)",
    "SELECT pg_try_advisory_xact_lock_shared(1)",
    "SELECT * FROM temperature INTO",
    "SELECT settings FROM t",
    "LOCK TABLE t",
    "SAVEPOINT s",
    'RELEASE SAVEPOINT "s"',
    "CALL pgqueue_finish(1, 2, 'done')",
    "NOTIFY channel",
    "",
    "SELECT " + "1, " * 5_000 + "1",
]


@pytest.mark.parametrize("text", TOUCHES)
def test_what_may_leave_something_is_recognized(text: str) -> None:
    assert touches_session(text)


@pytest.mark.parametrize("text", TOUCHES_NOT)
def test_what_leaves_nothing_keeps_its_connection(text: str) -> None:
    assert not touches_session(text)
