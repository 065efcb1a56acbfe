"""Statements that change the session are recognized by their text."""

from __future__ import annotations

import pytest

from django_pgqueue.worker.executor.connections import leaves_state

LEAVES = [
    "SET search_path TO other",
    "  set\n session search_path = other",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "SET SESSION AUTHORIZATION other",
    "SET ROLE other",
    "SET TIME ZONE 'UTC'",
    "-- a comment\nSET a.b = 1",
    "/* a; comment */ SET a.b = 1",
    "SELECT 1; SET a.b = 1",
    "BEGIN;SET a.b = 1;COMMIT",
    "RESET ALL",
    "DISCARD TEMP",
    "LISTEN channel",
    "LOAD 'auto_explain'",
    "DO $$ BEGIN PERFORM 1; END $$",
    "PREPARE p AS SELECT 1",
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    "DECLARE c NO SCROLL CURSOR WITH  HOLD FOR SELECT 1",
    "CREATE TEMP TABLE t (a int)",
    "create temporary view v AS SELECT 1",
    "CREATE OR REPLACE TEMP VIEW v AS SELECT 1",
    "CREATE LOCAL TEMPORARY TABLE t (a int)",
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
LEAVES_NOT = [
    'UPDATE "app_entry" SET "note" = %s',
    'INSERT INTO "t" ("set", "listen") VALUES (%s, %s) ON CONFLICT DO UPDATE SET a = 1',
    "SELECT 1; UPDATE t SET a = 1",
    "SET LOCAL lock_timeout = 1",
    "set  local search_path TO other",
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET CONSTRAINTS ALL IMMEDIATE",
    "SELECT set_config('app.tenant', %s, true)",
    "SELECT set_config('app.tenant', %s, TRUE) AS b",
    "SELECT pg_advisory_xact_lock(1)",
    "SELECT pg_try_advisory_xact_lock_shared(1)",
    "PREPARE TRANSACTION 'x'",
    "DECLARE c CURSOR FOR SELECT 1",
    "DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1",
    "CREATE TABLE template (a int)",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql SET search_path = a AS 'SELECT 1'",
    "SELECT * FROM temperature INTO",
    "SELECT settings FROM t",
    "LOCK TABLE t",
    "SAVEPOINT s",
    "DOMAIN",
    "NOTIFY channel",
    "",
    "SELECT " + "1, " * 5_000 + "1",
]


@pytest.mark.parametrize("text", LEAVES)
def test_what_leaves_something_is_recognised(text: str) -> None:
    assert leaves_state(text)


@pytest.mark.parametrize("text", LEAVES_NOT)
def test_what_leaves_nothing_keeps_its_connection(text: str) -> None:
    assert not leaves_state(text)
