"""The sequence of jobs, batches and payloads belongs to a column without ids, so that loads leave it alone.

It waits for transactions that have enqueued, and locks the sequence for a moment, so it has a migration of
its own.
"""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0018_duties")]

    operations = [
        RunSQLFile("job_id_seq_v1.sql", "ALTER SEQUENCE pgqueue_job_id_seq OWNED BY pgqueue_job.id"),
    ]
