"""A failing job ends, and a lost one is recovered, without rights to what no job depends on."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0035_key_columns")]

    operations = [
        RunSQLFile("note_failures_v2.sql", "DROP FUNCTION pgqueue_note_failures_v2"),
        RunSQLFile("last_progress_v1.sql", "DROP FUNCTION pgqueue_last_progress_v1"),
        RunSQLFile(
            "leave_out_v1.sql",
            "SELECT pgqueue_leave_out_v1(false); DROP FUNCTION pgqueue_leave_out_v1",
        ),
    ]
