"""The migration operation that installs one database object from its file in ``sql/``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import migrations

if TYPE_CHECKING:
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor

SQL_FOLDER = Path(__file__).parent / "sql"

# A function with SET search_path FROM CURRENT keeps the search path that is set when it is created, and finds
# its tables whatever the caller's path is. So the path is set to the one schema where the objects are
# created, and restored afterwards, because the rest of a migration may rely on it.
_ENTER = (
    "SELECT set_config('pgqueue.search_path', current_setting('search_path'), true),"
    " set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);"
)
_LEAVE = "SELECT set_config('search_path', current_setting('pgqueue.search_path'), true);"


class RunSQLFile(migrations.RunSQL):
    """Create the object in ``sql/<name>``; ``reverse`` is the statement that drops it. Only on PostgreSQL."""

    def __init__(self, name: str, reverse: str) -> None:
        self.name = name
        self.reverse = reverse
        super().__init__([_ENTER, (SQL_FOLDER / name).read_text(encoding="utf-8"), _LEAVE], reverse)

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return the constructor's arguments, for migrations."""
        return self.__class__.__qualname__, [self.name, self.reverse], {}

    def describe(self) -> str:
        """Return the text that ``migrate --plan`` shows."""
        return f"Install {self.name}"

    def _run_sql(self, schema_editor: BaseDatabaseSchemaEditor, sqls: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            return
        # Each is run as one string with its comments: Django need not split it into statements.
        for sql in [sqls] if isinstance(sqls, str) else sqls:
            schema_editor.execute(sql, params=None)
