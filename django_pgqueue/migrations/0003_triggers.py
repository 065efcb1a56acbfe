"""The triggers: one refuses changes that are no transition, two wake a worker at the commit."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0002_functions")]

    operations = [
        RunSQLFile("guard_trigger_v1.sql", "DROP TRIGGER pgqueue_guard ON pgqueue_job"),
        RunSQLFile("wake_insert_trigger_v1.sql", "DROP TRIGGER pgqueue_wake_insert ON pgqueue_job_live"),
        RunSQLFile("wake_update_trigger_v1.sql", "DROP TRIGGER pgqueue_wake_update ON pgqueue_job_live"),
    ]
