"""What dumps and loads need: the sequence of the jobs, and what upkeep may delete of payloads."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0017_roles")]

    operations = [
        # It waits for transactions that have enqueued, and locks the sequence until the migration ends.
        RunSQLFile("job_id_seq_v1.sql", "ALTER SEQUENCE pgqueue_job_id_seq OWNED BY pgqueue_job.id"),
        RunSQLFile("gone_v1.sql", "DROP TABLE pgqueue_gone"),
        RunSQLFile("stray_v1.sql", "DROP TABLE pgqueue_stray"),
        RunSQLFile("note_gone_v1.sql", "DROP FUNCTION pgqueue_note_gone_v1"),
        RunSQLFile("rotate_v2.sql", "DROP FUNCTION pgqueue_rotate_v2"),
        RunSQLFile("sweep_v2.sql", "DROP FUNCTION pgqueue_sweep_v2"),
        RunSQLFile("sweep_payloads_v2.sql", "DROP FUNCTION pgqueue_sweep_payloads_v2"),
    ]
