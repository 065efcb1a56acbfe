"""What maintenance may delete, and settings that functions need."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0021_size_trigger")]

    operations = [
        RunSQLFile("gone_v1.sql", "DROP TABLE pgqueue_gone"),
        RunSQLFile("stray_v1.sql", "DROP TABLE pgqueue_stray"),
        RunSQLFile("note_gone_v1.sql", "DROP FUNCTION pgqueue_note_gone_v1"),
        RunSQLFile("rotate_v2.sql", "DROP FUNCTION pgqueue_rotate_v2"),
        RunSQLFile("sweep_v2.sql", "DROP FUNCTION pgqueue_sweep_v2"),
        RunSQLFile("sweep_payloads_v2.sql", "DROP FUNCTION pgqueue_sweep_payloads_v2"),
        RunSQLFile(
            "standard_strings_v1.sql",
            "; ".join(
                f"ALTER FUNCTION pgqueue_{name}_v1 RESET standard_conforming_strings"
                for name in ("enqueue", "enqueue_many", "edit", "pause", "register_worker", "payload_paths")
            ),
        ),
    ]
