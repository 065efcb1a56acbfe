"""The database's own objects: tables, functions, the guard, migrations."""

from __future__ import annotations
