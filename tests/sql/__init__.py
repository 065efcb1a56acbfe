"""Tests of the objects in the database: tables, functions, the guard, migrations."""
