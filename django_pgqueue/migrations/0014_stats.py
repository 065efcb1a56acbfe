"""The sums of the statistics, the maintenance that makes them, and the depth of queues."""

import django.db.models.functions.datetime
from django.db import migrations, models

import django_pgqueue.models.fields

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0013_progress")]

    operations = [
        # Not by Django, because of the storage parameters.
        migrations.SeparateDatabaseAndState(
            database_operations=[RunSQLFile("stat_rollup_v1.sql", "DROP TABLE pgqueue_stat_rollup")],
            state_operations=[
                migrations.CreateModel(
                    name="StatRollup",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("queue_name", models.CharField(max_length=100, verbose_name="queue")),
                        ("task_path", models.CharField(max_length=255, verbose_name="task")),
                        ("done", models.BigIntegerField(default=0, verbose_name="done")),
                        ("failed", models.BigIntegerField(default=0, verbose_name="failed")),
                        ("retried", models.BigIntegerField(default=0, verbose_name="retried")),
                        ("cancelled", models.BigIntegerField(default=0, verbose_name="cancelled")),
                        (
                            "wait_histogram",
                            django_pgqueue.models.fields.ArrayColumn(
                                "bigint", default=list, verbose_name="waiting times"
                            ),
                        ),
                        (
                            "run_histogram",
                            django_pgqueue.models.fields.ArrayColumn(
                                "bigint", default=list, verbose_name="running times"
                            ),
                        ),
                        ("wait_seconds", models.FloatField(default=0, verbose_name="seconds waited")),
                        ("run_seconds", models.FloatField(default=0, verbose_name="seconds run")),
                        (
                            "span",
                            models.CharField(
                                choices=[
                                    ("minute", "minute"),
                                    ("quarter", "quarter of an hour"),
                                    ("hour", "hour"),
                                    ("day", "day"),
                                    ("total", "total"),
                                ],
                                max_length=8,
                                verbose_name="span",
                            ),
                        ),
                        ("start", models.DateTimeField(verbose_name="start")),
                        (
                            "updated_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(),
                                verbose_name="last changed at",
                            ),
                        ),
                    ],
                    options={
                        "verbose_name": "sum of statistics",
                        "verbose_name_plural": "sums of statistics",
                        "db_table": "pgqueue_stat_rollup",
                        "default_permissions": (),
                        "required_db_vendor": "postgresql",
                        "constraints": [
                            models.UniqueConstraint(
                                fields=("span", "start", "queue_name", "task_path"),
                                name="pgqueue_stat_rollup_key",
                            )
                        ],
                    },
                ),
            ],
        ),
        RunSQLFile("stat_pending_index_v1.sql", "DROP INDEX pgqueue_stat_pending"),
        RunSQLFile("roll_up_v1.sql", "DROP FUNCTION pgqueue_roll_up_v1"),
        RunSQLFile("forget_statistics_v1.sql", "DROP FUNCTION pgqueue_forget_statistics_v1"),
        RunSQLFile("estimate_v1.sql", "DROP FUNCTION pgqueue_estimate_v1"),
        RunSQLFile("depth_v1.sql", "DROP FUNCTION pgqueue_depth_v1"),
    ]
