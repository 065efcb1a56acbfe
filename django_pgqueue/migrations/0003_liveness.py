"""Recovery that counts crashes, deadlines that can be extended."""

from django.db import migrations

from ..models.fields import ArrayColumn
from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0002_functions")]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="started_jobs",
            field=ArrayColumn("bigint", null=True, verbose_name="jobs that had begun at the last heartbeat"),
        ),
        migrations.AlterModelOptions(
            name="job",
            options={
                "default_permissions": ("view",),
                "permissions": (
                    ("cancel_job", "Can cancel job"),
                    ("retry_job", "Can retry job"),
                    ("run_job", "Can run job now"),
                    ("extend_job", "Can give a running job more time"),
                ),
                "required_db_vendor": "postgresql",
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
        RunSQLFile("lost_v1.sql", "DROP FUNCTION pgqueue_lost_v1"),
        RunSQLFile("crashed_v1.sql", "DROP FUNCTION pgqueue_crashed_v1"),
        RunSQLFile("strike_off_v1.sql", "DROP FUNCTION pgqueue_strike_off_v1"),
        RunSQLFile("recover_v2.sql", "DROP FUNCTION pgqueue_recover_v2"),
        RunSQLFile("bury_v1.sql", "DROP FUNCTION pgqueue_bury_v1"),
        RunSQLFile("dead_workers_v2.sql", "DROP FUNCTION pgqueue_dead_workers_v2"),
        RunSQLFile("end_sessions_v1.sql", "DROP FUNCTION pgqueue_end_sessions_v1"),
        RunSQLFile("recover_dead_v1.sql", "DROP FUNCTION pgqueue_recover_dead_v1"),
        RunSQLFile("recover_strays_v1.sql", "DROP FUNCTION pgqueue_recover_strays_v1"),
        RunSQLFile("extend_v1.sql", "DROP FUNCTION pgqueue_extend_v1"),
        RunSQLFile("extend.sql", "DROP FUNCTION pgqueue_extend"),
    ]
