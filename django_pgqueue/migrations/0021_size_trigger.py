"""The trigger that checks it. It locks the table of jobs for a moment, so it has a migration of its own."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0020_sizes")]

    operations = [
        RunSQLFile("check_size_trigger_v1.sql", "DROP TRIGGER pgqueue_check_size ON pgqueue_job_live"),
    ]
