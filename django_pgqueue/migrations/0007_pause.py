"""Pauses of queues, tasks, or everything, and the functions that pause, resume and drain."""

import django.db.models.functions.datetime
from django.db import migrations, models

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0006_limits")]

    operations = [
        migrations.CreateModel(
            name="Pause",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[("queue", "queue"), ("task", "task"), ("all", "everything")],
                        max_length=8,
                        verbose_name="what",
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        blank=True,
                        db_default="",
                        help_text=(
                            "The name of a queue, or the path of a task, such as shop.tasks.sync. "
                            "Empty for everything."
                        ),
                        max_length=255,
                        verbose_name="name",
                    ),
                ),
                (
                    "reason",
                    models.CharField(blank=True, db_default="", max_length=400, verbose_name="reason"),
                ),
                (
                    "author",
                    models.CharField(blank=True, db_default="", max_length=150, verbose_name="paused by"),
                ),
                (
                    "paused_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="paused at"
                    ),
                ),
                ("until", models.DateTimeField(blank=True, null=True, verbose_name="until")),
            ],
            options={
                "verbose_name": "pause",
                "verbose_name_plural": "pauses",
                "db_table": "pgqueue_pause",
                "required_db_vendor": "postgresql",
                "constraints": (
                    models.UniqueConstraint(fields=("kind", "name"), name="pgqueue_pause_target"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("kind__in", ["queue", "task"]), models.Q(("name", ""), _negated=True)),
                            models.Q(("kind", "all"), ("name", "")),
                            _connector="OR",
                        ),
                        name="pgqueue_pause_kind",
                    ),
                ),
            },
        ),
        RunSQLFile("job_paused_index_v1.sql", "DROP INDEX pgqueue_job_paused"),
        RunSQLFile("pause_v1.sql", "DROP FUNCTION pgqueue_pause_v1"),
        RunSQLFile("pause.sql", "DROP FUNCTION pgqueue_pause"),
        RunSQLFile("resume_v1.sql", "DROP FUNCTION pgqueue_resume_v1"),
        RunSQLFile("resume.sql", "DROP FUNCTION pgqueue_resume"),
        RunSQLFile("unpause_v1.sql", "DROP FUNCTION pgqueue_unpause_v1"),
        RunSQLFile("drain_worker_v1.sql", "DROP FUNCTION pgqueue_drain_worker_v1"),
        RunSQLFile("drain_worker.sql", "DROP FUNCTION pgqueue_drain_worker"),
    ]
