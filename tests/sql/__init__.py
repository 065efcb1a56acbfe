"""Tests of the objects in the database: tables, functions, the guard, migrations."""

from __future__ import annotations
