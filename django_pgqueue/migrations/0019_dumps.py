"""What dumps and loads need: the sequence of the jobs, and what upkeep may delete of payloads."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0017_roles")]

    operations = [
        # It waits for transactions that have enqueued, and locks the sequence until the migration ends.
        RunSQLFile("job_id_seq_v1.sql", "ALTER SEQUENCE pgqueue_job_id_seq OWNED BY pgqueue_job.id"),
    ]
