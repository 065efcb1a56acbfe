"""The tables, with their leaves and indexes."""

import django.core.validators
import django.db.models.functions.datetime
from django.db import migrations, models

import django_pgqueue.models.fields

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="QueueStatus",
            fields=[
                (
                    "status",
                    models.CharField(max_length=16, primary_key=True, serialize=False, verbose_name="status"),
                ),
                ("is_claimable", models.BooleanField(verbose_name="may be claimed")),
                ("is_terminal", models.BooleanField(verbose_name="is finished")),
            ],
            options={
                "verbose_name": "status",
                "verbose_name_plural": "statuses",
                "db_table": "pgqueue_status",
                "default_permissions": (),
                "managed": False,
                "required_db_vendor": "postgresql",
            },
        ),
        migrations.CreateModel(
            name="Ring",
            fields=[
                ("one", models.BooleanField(primary_key=True, serialize=False)),
                ("current", models.SmallIntegerField(verbose_name="current shelf")),
                ("since", models.DateTimeField(verbose_name="since")),
                ("retention", models.DurationField(verbose_name="retention")),
                ("failed_retention", models.DurationField(verbose_name="retention of failed jobs")),
            ],
            options={
                "verbose_name": "ring of history",
                "verbose_name_plural": "rings of history",
                "db_table": "pgqueue_ring",
                "default_permissions": (),
                "managed": False,
                "required_db_vendor": "postgresql",
            },
        ),
        # Django cannot create a partitioned table: the statements do, the state knows the model.
        migrations.SeparateDatabaseAndState(
            database_operations=[
                RunSQLFile("job_v1.sql", "DROP TABLE pgqueue_job"),
                RunSQLFile("job_live_v1.sql", "DROP TABLE pgqueue_job_live"),
                RunSQLFile("job_claim_index_v1.sql", "DROP INDEX pgqueue_job_claim"),
                RunSQLFile("job_group_index_v1.sql", "DROP INDEX pgqueue_job_group"),
                RunSQLFile("job_running_index_v1.sql", "DROP INDEX pgqueue_job_running"),
                RunSQLFile("job_unique_waiting_index_v1.sql", "DROP INDEX pgqueue_job_unique_waiting"),
                RunSQLFile("job_unique_live_index_v1.sql", "DROP INDEX pgqueue_job_unique_live"),
                RunSQLFile(
                    "job_past_v1.sql",
                    "DROP TABLE " + ", ".join(f"pgqueue_job_past_{shelf}" for shelf in range(1, 9)),
                ),
                RunSQLFile("job_kept_v1.sql", "DROP TABLE pgqueue_job_kept"),
                RunSQLFile("job_kept_index_v1.sql", "DROP INDEX pgqueue_job_kept_sweep"),
            ],
            state_operations=[
                migrations.CreateModel(
                    name="Job",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "shelf",
                            models.SmallIntegerField(db_default=0, editable=False, verbose_name="shelf"),
                        ),
                        (
                            "status",
                            models.CharField(
                                choices=[
                                    ("pending", "pending"),
                                    ("retry", "retry"),
                                    ("running", "running"),
                                    ("blocked", "blocked"),
                                    ("done", "done"),
                                    ("failed", "failed"),
                                    ("cancelled", "cancelled"),
                                ],
                                db_default="pending",
                                max_length=16,
                                verbose_name="status",
                            ),
                        ),
                        ("task_path", models.CharField(max_length=255, verbose_name="task")),
                        (
                            "args",
                            models.JSONField(
                                db_default=models.Value([], models.JSONField()), verbose_name="arguments"
                            ),
                        ),
                        (
                            "kwargs",
                            models.JSONField(
                                db_default=models.Value({}, models.JSONField()),
                                verbose_name="keyword arguments",
                            ),
                        ),
                        (
                            "metadata",
                            models.JSONField(
                                db_default=models.Value({}, models.JSONField()), verbose_name="metadata"
                            ),
                        ),
                        (
                            "queue_name",
                            models.CharField(db_default="default", max_length=100, verbose_name="queue"),
                        ),
                        ("priority", models.SmallIntegerField(db_default=0, verbose_name="priority")),
                        (
                            "run_after",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), verbose_name="run after"
                            ),
                        ),
                        (
                            "expires_at",
                            models.DateTimeField(blank=True, null=True, verbose_name="expires at"),
                        ),
                        (
                            "enqueued_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(),
                                verbose_name="enqueued at",
                            ),
                        ),
                        (
                            "max_attempts",
                            models.IntegerField(blank=True, null=True, verbose_name="maximum attempts"),
                        ),
                        (
                            "timeout",
                            models.IntegerField(blank=True, null=True, verbose_name="timeout in seconds"),
                        ),
                        (
                            "on_lost",
                            models.CharField(
                                blank=True, max_length=8, null=True, verbose_name="if the worker is lost"
                            ),
                        ),
                        (
                            "limit_key",
                            models.CharField(
                                blank=True,
                                db_collation="C",
                                max_length=200,
                                null=True,
                                verbose_name="limit key",
                            ),
                        ),
                        (
                            "group_key",
                            models.CharField(
                                blank=True, db_collation="C", max_length=200, null=True, verbose_name="group"
                            ),
                        ),
                        (
                            "wait_position",
                            models.BigIntegerField(
                                blank=True, null=True, verbose_name="place in the wait queue of its limit key"
                            ),
                        ),
                        (
                            "unique_key",
                            models.CharField(
                                blank=True, max_length=200, null=True, verbose_name="unique key"
                            ),
                        ),
                        (
                            "unique_scope",
                            models.CharField(
                                blank=True,
                                choices=[("waiting", "while it waits"), ("live", "until it has finished")],
                                max_length=8,
                                null=True,
                                verbose_name="unique",
                            ),
                        ),
                        ("context", models.JSONField(blank=True, null=True, verbose_name="context")),
                        (
                            "batch_id",
                            models.BigIntegerField(
                                blank=True, db_column="batch", null=True, verbose_name="batch"
                            ),
                        ),
                        (
                            "parent_ids",
                            django_pgqueue.models.fields.ArrayColumn(
                                "bigint",
                                blank=True,
                                db_column="parents",
                                null=True,
                                verbose_name="enqueued after",
                            ),
                        ),
                        ("attempts", models.IntegerField(db_default=0, verbose_name="attempts")),
                        (
                            "forgiven_attempts",
                            models.IntegerField(
                                db_default=0, verbose_name="attempts before the last manual retry"
                            ),
                        ),
                        ("crash_count", models.SmallIntegerField(db_default=0, verbose_name="crashes")),
                        (
                            "lost_in_a_row",
                            models.SmallIntegerField(db_default=0, verbose_name="lost in a row"),
                        ),
                        (
                            "marks",
                            models.SmallIntegerField(db_default=0, editable=False, verbose_name="marks"),
                        ),
                        (
                            "current_step",
                            models.CharField(
                                blank=True, db_default="", max_length=100, verbose_name="current step"
                            ),
                        ),
                        ("worker", models.BigIntegerField(blank=True, null=True, verbose_name="worker")),
                        ("lease", models.BigIntegerField(blank=True, null=True, verbose_name="lease")),
                        (
                            "started_at",
                            models.DateTimeField(blank=True, null=True, verbose_name="first started at"),
                        ),
                        (
                            "last_attempted_at",
                            models.DateTimeField(blank=True, null=True, verbose_name="last attempted at"),
                        ),
                        ("deadline", models.DateTimeField(blank=True, null=True, verbose_name="deadline")),
                        (
                            "cancel_requested_at",
                            models.DateTimeField(blank=True, null=True, verbose_name="cancel requested at"),
                        ),
                        (
                            "waiting_reason",
                            models.CharField(
                                blank=True, db_default="", max_length=500, verbose_name="reason"
                            ),
                        ),
                        (
                            "finished_at",
                            models.DateTimeField(blank=True, null=True, verbose_name="finished at"),
                        ),
                        (
                            "duration",
                            models.FloatField(blank=True, null=True, verbose_name="duration in seconds"),
                        ),
                        ("result", models.JSONField(blank=True, null=True, verbose_name="result")),
                        ("steps", models.JSONField(blank=True, null=True, verbose_name="steps")),
                        (
                            "errors",
                            models.JSONField(
                                db_default=models.Value([], models.JSONField()), verbose_name="errors"
                            ),
                        ),
                        (
                            "error_fingerprint",
                            models.CharField(
                                blank=True,
                                db_default="",
                                max_length=40,
                                verbose_name="error fingerprint",
                            ),
                        ),
                        ("logs", models.JSONField(blank=True, null=True, verbose_name="logs")),
                    ],
                    options={
                        "verbose_name": "job",
                        "verbose_name_plural": "jobs",
                        "db_table": "pgqueue_job",
                        "required_db_vendor": "postgresql",
                        "default_permissions": ("view",),
                        "permissions": (
                            ("cancel_job", "Can cancel job"),
                            ("retry_job", "Can retry job"),
                            ("rerun_done_job", "Can run a done job again"),
                            ("run_now_job", "Can run job now"),
                            ("extend_job", "Can give a running job more time"),
                            ("edit_job", "Can edit waiting job"),
                            ("clone_job", "Can enqueue a copy of a job"),
                            ("view_arguments_job", "Can view the arguments and results of jobs"),
                        ),
                    },
                ),
            ],
        ),
        RunSQLFile("status_v1.sql", "DROP TABLE pgqueue_status"),
        RunSQLFile("ring_v1.sql", "DROP TABLE pgqueue_ring"),
        migrations.CreateModel(
            name="Queue",
            fields=[
                (
                    "name",
                    models.CharField(
                        max_length=100,
                        primary_key=True,
                        serialize=False,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[A-Za-z0-9_.-]+\\Z",
                                "Use only letters, digits and the characters _ - .",
                            )
                        ],
                        verbose_name="name",
                    ),
                ),
                (
                    "retention",
                    models.DurationField(
                        blank=True,
                        help_text="“90 00:00:00” means 90 days. Zero keeps nothing; empty uses RETENTION.",
                        null=True,
                        verbose_name="keep done and cancelled jobs for",
                    ),
                ),
                (
                    "failed_retention",
                    models.DurationField(
                        blank=True,
                        help_text=(
                            "“90 00:00:00” means 90 days. Zero keeps nothing; empty uses FAILED_RETENTION."
                        ),
                        null=True,
                        verbose_name="keep failed jobs for",
                    ),
                ),
                (
                    "backoff_base",
                    models.FloatField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="first wait before a retry, in seconds",
                    ),
                ),
                (
                    "backoff_ceiling",
                    models.FloatField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="longest wait before a retry, in seconds",
                    ),
                ),
            ],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "db_table": "pgqueue_queue",
                "required_db_vendor": "postgresql",
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False, verbose_name="id")),
                ("host", models.CharField(max_length=255, verbose_name="host")),
                ("pid", models.IntegerField(verbose_name="process")),
                ("supervisor", models.BigIntegerField(blank=True, null=True, verbose_name="supervisor")),
                (
                    "queues",
                    django_pgqueue.models.fields.ArrayColumn("text", default=list, verbose_name="queues"),
                ),
                (
                    "exclude_queues",
                    django_pgqueue.models.fields.ArrayColumn(
                        "text", db_default=[], default=list, verbose_name="all queues but"
                    ),
                ),
                ("slots", models.IntegerField(verbose_name="slots")),
                ("version", models.CharField(max_length=50, verbose_name="version")),
                (
                    "state",
                    models.CharField(
                        choices=[("running", "running"), ("draining", "draining")],
                        db_default="running",
                        max_length=10,
                        verbose_name="state",
                    ),
                ),
                (
                    "last_group",
                    models.CharField(
                        blank=True,
                        db_default="",
                        editable=False,
                        max_length=200,
                        verbose_name="group of its last job",
                    ),
                ),
                (
                    "drain",
                    models.CharField(
                        blank=True,
                        choices=[("replace", "to be replaced"), ("stop", "with all its processes")],
                        db_default="",
                        max_length=8,
                        verbose_name="asked to end",
                    ),
                ),
                (
                    "holds_lock",
                    models.BooleanField(
                        db_default=True,
                        help_text="Its process holds a session lock while it lives, except behind a pooler.",
                        verbose_name="holds its lock",
                    ),
                ),
                ("memory", models.BigIntegerField(blank=True, null=True, verbose_name="memory in bytes")),
                (
                    "started_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="started at"
                    ),
                ),
                (
                    "heartbeat_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="last heartbeat"
                    ),
                ),
                (
                    "started_jobs",
                    django_pgqueue.models.fields.ArrayColumn(
                        "bigint", null=True, verbose_name="jobs that had started at the last heartbeat"
                    ),
                ),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "db_table": "pgqueue_worker",
                "default_permissions": ("view",),
                "permissions": (("drain_worker", "Can stop or replace worker"),),
                "required_db_vendor": "postgresql",
            },
        ),
        migrations.CreateModel(
            name="JobStat",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("minute", models.DateTimeField(verbose_name="minute")),
                (
                    "rolled_up",
                    models.BooleanField(default=False, editable=False, verbose_name="rolled up"),
                ),
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
            ],
            options={
                "verbose_name": "statistic",
                "verbose_name_plural": "tasks",
                "db_table": "pgqueue_stat",
                "default_permissions": ("view",),
                "required_db_vendor": "postgresql",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("minute", "queue_name", "task_path", "rolled_up"), name="pgqueue_stat_key"
                    )
                ],
            },
        ),
    ]
