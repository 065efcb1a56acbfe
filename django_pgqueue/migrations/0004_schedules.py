"""Schedules and their runs, the functions that fire them, and the trigger that follows changes of timing."""

import datetime

import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import django_pgqueue.models.fields

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [
        ("django_pgqueue", "0003_triggers"),
    ]

    operations = [
        migrations.CreateModel(
            name="Schedule",
            fields=[
                (
                    "name",
                    models.CharField(
                        max_length=200,
                        primary_key=True,
                        serialize=False,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[A-Za-z0-9_.:-]+\\Z",
                                "Use only letters, digits and the characters _ - . and :",
                            )
                        ],
                        verbose_name="name",
                    ),
                ),
                (
                    "task_path",
                    models.CharField(
                        help_text="For example: shop.tasks.report", max_length=255, verbose_name="task"
                    ),
                ),
                (
                    "args",
                    models.JSONField(
                        blank=True, db_default=[], default=list, verbose_name="positional arguments"
                    ),
                ),
                (
                    "kwargs",
                    models.JSONField(
                        blank=True, db_default={}, default=dict, verbose_name="keyword arguments"
                    ),
                ),
                (
                    "queue_name",
                    models.CharField(
                        blank=True,
                        help_text="Empty: the queue of the task.",
                        max_length=100,
                        null=True,
                        verbose_name="queue",
                    ),
                ),
                (
                    "priority",
                    models.SmallIntegerField(
                        blank=True,
                        help_text="Empty: the priority of the task.",
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(-100),
                            django.core.validators.MaxValueValidator(100),
                        ],
                        verbose_name="priority",
                    ),
                ),
                (
                    "cron",
                    models.CharField(
                        blank=True,
                        help_text="Minute, hour, day, month, weekday. “0 3 * * 1-5”: weekdays at 3:00.",
                        max_length=100,
                        null=True,
                        verbose_name="cron expression",
                    ),
                ),
                (
                    "every",
                    models.DurationField(
                        blank=True,
                        help_text="Instead of a cron expression. “00:00:30”: 30 s.",
                        null=True,
                        verbose_name="interval",
                    ),
                ),
                (
                    "timezone",
                    models.CharField(
                        db_default="UTC", default="UTC", max_length=64, verbose_name="time zone"
                    ),
                ),
                (
                    "catch_up",
                    models.CharField(
                        choices=[
                            ("skip", "skip them"),
                            ("latest", "run the latest"),
                            ("all", "run all, up to the limit"),
                        ],
                        db_default="latest",
                        default="latest",
                        max_length=8,
                        verbose_name="missed runs",
                    ),
                ),
                (
                    "catch_up_limit",
                    models.IntegerField(
                        db_default=100,
                        default=100,
                        help_text=(
                            "The most missed runs that are caught up, and the most runs that wait for a job."
                        ),
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(10000),
                        ],
                        verbose_name="limit",
                    ),
                ),
                (
                    "overlap",
                    models.CharField(
                        choices=[
                            ("allow", "run beside it"),
                            ("skip", "skip the run"),
                            ("queue", "run after it"),
                        ],
                        db_default="allow",
                        default="allow",
                        max_length=8,
                        verbose_name="while the previous job is not finished",
                    ),
                ),
                (
                    "jitter",
                    models.DurationField(
                        db_default=datetime.timedelta(0),
                        default=datetime.timedelta(0),
                        help_text="Each job starts up to this much later, at random.",
                        verbose_name="jitter",
                    ),
                ),
                (
                    "source",
                    models.CharField(
                        choices=[("code", "code"), ("settings", "settings"), ("admin", "admin")],
                        db_default="admin",
                        default="admin",
                        editable=False,
                        max_length=8,
                        verbose_name="declared in",
                    ),
                ),
                (
                    "declared_by",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        editable=False,
                        max_length=255,
                        verbose_name="module",
                    ),
                ),
                (
                    "declared",
                    models.JSONField(blank=True, editable=False, null=True, verbose_name="declared values"),
                ),
                (
                    "overridden",
                    models.JSONField(
                        blank=True,
                        db_default=[],
                        default=list,
                        editable=False,
                        verbose_name="overridden fields",
                    ),
                ),
                (
                    "policy",
                    models.JSONField(
                        blank=True, editable=False, null=True, verbose_name="policy of the task"
                    ),
                ),
                (
                    "paused_at",
                    models.DateTimeField(blank=True, editable=False, null=True, verbose_name="paused at"),
                ),
                (
                    "pause_author",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        editable=False,
                        max_length=255,
                        verbose_name="paused by",
                    ),
                ),
                (
                    "pause_reason",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        editable=False,
                        max_length=500,
                        verbose_name="reason",
                    ),
                ),
                (
                    "retired_at",
                    models.DateTimeField(blank=True, editable=False, null=True, verbose_name="retired at"),
                ),
                (
                    "next_run_at",
                    models.DateTimeField(blank=True, editable=False, null=True, verbose_name="next run at"),
                ),
                (
                    "last_run_at",
                    models.DateTimeField(blank=True, editable=False, null=True, verbose_name="last run at"),
                ),
                (
                    "since",
                    models.DateTimeField(blank=True, editable=False, null=True, verbose_name="timing set at"),
                ),
                (
                    "owed",
                    models.JSONField(blank=True, editable=False, null=True, verbose_name="timings before"),
                ),
                (
                    "live_jobs",
                    django_pgqueue.models.fields.ArrayColumn(
                        "bigint", db_default=[], default=list, verbose_name="jobs that may be live"
                    ),
                ),
                (
                    "waiting",
                    models.IntegerField(db_default=0, default=0, editable=False, verbose_name="waiting runs"),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        editable=False,
                        verbose_name="created at",
                    ),
                ),
                (
                    "updated_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        editable=False,
                        verbose_name="last changed",
                    ),
                ),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "db_table": "pgqueue_schedule",
                "permissions": (
                    ("pause_schedule", "Can pause and resume schedule"),
                    ("enqueue_schedule", "Can run schedule now"),
                ),
                "required_db_vendor": "postgresql",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cron__isnull", False), ("every__isnull", True)),
                            models.Q(("cron__isnull", True), ("every__isnull", False)),
                            _connector="OR",
                        ),
                        name="pgqueue_schedule_timing",
                        violation_error_message="Set either a cron expression or an interval.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("every__isnull", True),
                            ("every__range", (datetime.timedelta(seconds=1), datetime.timedelta(days=3660))),
                            _connector="OR",
                        ),
                        name="pgqueue_schedule_every",
                        violation_error_message="The interval must be from 1 second to 3660 days.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("jitter__gte", datetime.timedelta(0)),
                            models.Q(
                                ("every__isnull", True), ("jitter__lte", models.F("every")), _connector="OR"
                            ),
                        ),
                        name="pgqueue_schedule_jitter",
                        violation_error_message="The jitter must be from zero to the interval.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("catch_up__in", ["skip", "latest", "all"]),
                            ("catch_up_limit__range", (1, 10000)),
                            ("overlap__in", ["allow", "skip", "queue"]),
                            ("source__in", ["code", "settings", "admin"]),
                        ),
                        name="pgqueue_schedule_choices",
                        violation_error_message="An option has a value that does not exist.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("next_run_at__isnull", True),
                                (
                                    "next_run_at__range",
                                    (
                                        datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC),
                                        datetime.datetime(9000, 1, 1, 0, 0, tzinfo=datetime.UTC),
                                    ),
                                ),
                                _connector="OR",
                            ),
                            models.Q(
                                ("last_run_at__isnull", True),
                                (
                                    "last_run_at__range",
                                    (
                                        datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC),
                                        datetime.datetime(9000, 1, 1, 0, 0, tzinfo=datetime.UTC),
                                    ),
                                ),
                                _connector="OR",
                            ),
                            models.Q(
                                ("since__isnull", True),
                                (
                                    "since__range",
                                    (
                                        datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC),
                                        datetime.datetime(9000, 1, 1, 0, 0, tzinfo=datetime.UTC),
                                    ),
                                ),
                                _connector="OR",
                            ),
                        ),
                        name="pgqueue_schedule_times",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ScheduleRun",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("run_at", models.DateTimeField(verbose_name="run at")),
                ("job_id", models.BigIntegerField(null=True, verbose_name="job")),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("enqueued", "enqueued"),
                            ("waiting", "waiting for the previous job"),
                            ("skipped", "skipped, because the previous job was not finished"),
                            ("existing", "skipped, because another job had its unique key"),
                            ("replaced", "took the place of a waiting job with its unique key"),
                            ("missed", "missed, because no worker was there"),
                            ("manual", "run by hand"),
                        ],
                        max_length=8,
                        verbose_name="outcome",
                    ),
                ),
                (
                    "schedule",
                    models.ForeignKey(
                        db_column="schedule",
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="runs",
                        to="django_pgqueue.schedule",
                        verbose_name="schedule",
                    ),
                ),
            ],
            options={
                "verbose_name": "run",
                "verbose_name_plural": "runs",
                "db_table": "pgqueue_schedule_run",
                "default_permissions": ("view",),
                "required_db_vendor": "postgresql",
                "indexes": [models.Index(fields=["run_at"], name="pgqueue_run_age")],
                "constraints": [
                    models.UniqueConstraint(fields=("schedule", "run_at"), name="pgqueue_run_once")
                ],
            },
        ),
        RunSQLFile("schedule_due_index_v1.sql", "DROP INDEX pgqueue_schedule_due"),
        RunSQLFile("schedule_waiting_index_v1.sql", "DROP INDEX pgqueue_schedule_waiting"),
        RunSQLFile("run_waiting_index_v1.sql", "DROP INDEX pgqueue_run_waiting"),
        RunSQLFile("enqueue_runs_v1.sql", "DROP FUNCTION pgqueue_enqueue_runs_v1"),
        RunSQLFile("fire_v1.sql", "DROP FUNCTION pgqueue_fire_v1"),
        RunSQLFile("enqueue_schedule_v1.sql", "DROP FUNCTION pgqueue_enqueue_schedule_v1"),
        RunSQLFile("schedule_changed_v1.sql", "DROP FUNCTION pgqueue_schedule_changed_v1"),
        RunSQLFile("schedule_trigger_v1.sql", "DROP TRIGGER pgqueue_schedule_changed ON pgqueue_schedule"),
    ]
