"""The tables and their indexes."""

from datetime import UTC, datetime, timedelta

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import migrations, models
from django.db.models.functions import Now

from ..models.fields import ArrayColumn
from ..operations import RunSQLFile

FIRST_TIME, LAST_TIME = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


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
                            RegexValidator(
                                "\\A[A-Za-z0-9_.-]+\\Z", "Use only letters, digits and the characters _ - ."
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
                        validators=[MinValueValidator(0)],
                        verbose_name="first wait before a retry, in seconds",
                    ),
                ),
                (
                    "backoff_ceiling",
                    models.FloatField(
                        blank=True,
                        null=True,
                        validators=[MinValueValidator(0)],
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
                ("queues", ArrayColumn("text", default=list, verbose_name="queues")),
                (
                    "exclude_queues",
                    ArrayColumn("text", db_default=[], default=list, verbose_name="all queues but"),
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
                ("started_at", models.DateTimeField(db_default=Now(), verbose_name="started at")),
                ("heartbeat_at", models.DateTimeField(db_default=Now(), verbose_name="last heartbeat")),
                (
                    "started_jobs",
                    ArrayColumn(
                        "bigint", null=True, verbose_name="jobs that had started at the last heartbeat"
                    ),
                ),
                (
                    "lost",
                    models.IntegerField(db_default=0, default=0, verbose_name="slots taken by lost jobs"),
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
                ("rolled_up", models.BooleanField(default=False, editable=False, verbose_name="rolled up")),
                ("queue_name", models.CharField(max_length=100, verbose_name="queue")),
                ("task_path", models.CharField(max_length=255, verbose_name="task")),
                ("done", models.BigIntegerField(default=0, verbose_name="done")),
                ("failed", models.BigIntegerField(default=0, verbose_name="failed")),
                ("retried", models.BigIntegerField(default=0, verbose_name="retried")),
                ("cancelled", models.BigIntegerField(default=0, verbose_name="cancelled")),
                ("wait_histogram", ArrayColumn("bigint", default=list, verbose_name="waiting times")),
                ("run_histogram", ArrayColumn("bigint", default=list, verbose_name="running times")),
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
                            RegexValidator(
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
                        validators=[MinValueValidator(-100), MaxValueValidator(100)],
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
                        validators=[MinValueValidator(1), MaxValueValidator(10000)],
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
                        db_default=timedelta(0),
                        default=timedelta(0),
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
                    ArrayColumn("bigint", db_default=[], default=list, verbose_name="jobs that may be live"),
                ),
                (
                    "waiting",
                    models.IntegerField(db_default=0, default=0, editable=False, verbose_name="waiting runs"),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=Now(), editable=False, verbose_name="created at"),
                ),
                (
                    "updated_at",
                    models.DateTimeField(db_default=Now(), editable=False, verbose_name="last changed"),
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
                            ("every__range", (timedelta(seconds=1), timedelta(days=3660))),
                            _connector="OR",
                        ),
                        name="pgqueue_schedule_every",
                        violation_error_message="The interval must be from 1 second to 3660 days.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("jitter__gte", timedelta(0)),
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
                                ("next_run_at__range", (FIRST_TIME, LAST_TIME)),
                                _connector="OR",
                            ),
                            models.Q(
                                ("last_run_at__isnull", True),
                                ("last_run_at__range", (FIRST_TIME, LAST_TIME)),
                                _connector="OR",
                            ),
                            models.Q(
                                ("since__isnull", True),
                                ("since__range", (FIRST_TIME, LAST_TIME)),
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
                        on_delete=models.CASCADE,
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
        migrations.CreateModel(
            name="Limit",
            fields=[
                (
                    "name",
                    models.CharField(
                        help_text=(
                            "The path of a task, a name in code, “queue:mail” for a queue, “*” for all jobs."
                        ),
                        max_length=200,
                        primary_key=True,
                        serialize=False,
                        validators=[
                            RegexValidator(
                                "\\A[^/]+\\Z", "Leave out the slash: a limit applies to each of its keys."
                            )
                        ],
                        verbose_name="name",
                    ),
                ),
                (
                    "concurrency",
                    models.IntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            MinValueValidator(
                                1, "At least 1. To let no job start, pause the queue or the task."
                            ),
                            MaxValueValidator(2147483647),
                        ],
                        verbose_name="jobs at once",
                    ),
                ),
                (
                    "on_full",
                    models.CharField(
                        choices=[
                            ("wait", "it waits"),
                            ("cancel_new", "it is cancelled"),
                            ("cancel_old", "it replaces older ones"),
                        ],
                        db_default="wait",
                        max_length=10,
                        verbose_name="a job that finds no room",
                    ),
                ),
                (
                    "declared_concurrency",
                    models.IntegerField(
                        blank=True, editable=False, null=True, verbose_name="declared in code"
                    ),
                ),
                (
                    "rate",
                    models.IntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            MinValueValidator(
                                1, "At least 1. To let no job start, pause the queue or the task."
                            ),
                            MaxValueValidator(2147483647),
                        ],
                        verbose_name="starts",
                    ),
                ),
                (
                    "per",
                    models.DurationField(
                        blank=True,
                        help_text="The time in which so many jobs may start, such as 0:01:00.",
                        null=True,
                        verbose_name="in a period of",
                    ),
                ),
                (
                    "burst",
                    models.IntegerField(
                        blank=True,
                        help_text="How many may start at once after a quiet time. Empty: 1.",
                        null=True,
                        validators=[MinValueValidator(1, "At least 1."), MaxValueValidator(2147483647)],
                        verbose_name="burst",
                    ),
                ),
                ("declared_rate", models.IntegerField(blank=True, editable=False, null=True)),
                ("declared_per", models.DurationField(blank=True, editable=False, null=True)),
                ("declared_burst", models.IntegerField(blank=True, editable=False, null=True)),
                ("declared_by", models.CharField(blank=True, db_default="", editable=False, max_length=255)),
                (
                    "is_overridden",
                    models.BooleanField(db_default=False, editable=False, verbose_name="set by hand"),
                ),
            ],
            options={
                "verbose_name": "limit",
                "verbose_name_plural": "limits",
                "db_table": "pgqueue_limit",
                "required_db_vendor": "postgresql",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("concurrency__gte", 1)), name="pgqueue_limit_concurrency"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("burst", None), ("per", None), ("rate", None)),
                            models.Q(("burst__gte", 1), ("per__gt", timedelta(0)), ("rate__gte", 1)),
                            _connector="OR",
                        ),
                        name="pgqueue_limit_rate",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("on_full__in", ["wait", "cancel_new", "cancel_old"])),
                        name="pgqueue_limit_on_full",
                    ),
                ],
            },
        ),
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
                ("paused_at", models.DateTimeField(db_default=Now(), verbose_name="paused at")),
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
        migrations.CreateModel(
            name="DeclaredTask",
            fields=[
                (
                    "task_path",
                    models.CharField(max_length=255, primary_key=True, serialize=False, verbose_name="task"),
                ),
                ("queue_name", models.CharField(max_length=100, verbose_name="queue")),
                ("priority", models.SmallIntegerField(verbose_name="priority")),
                ("max_attempts", models.IntegerField(null=True, verbose_name="maximum attempts")),
                ("timeout", models.IntegerField(null=True, verbose_name="timeout in seconds")),
                ("on_lost", models.CharField(max_length=8, null=True, verbose_name="if the worker is lost")),
                ("expires_after", models.FloatField(null=True, verbose_name="expires after seconds")),
                ("metadata", models.JSONField(default=dict, verbose_name="metadata")),
                ("limit_name", models.CharField(max_length=200, null=True, verbose_name="name of the limit")),
                ("unique_options", models.JSONField(null=True, verbose_name="unique")),
                ("computed_keys", models.JSONField(default=list, verbose_name="computed keys")),
                ("search", models.JSONField(null=True, verbose_name="indexed arguments")),
                ("model", models.CharField(max_length=255, null=True, verbose_name="model")),
                ("relation", models.CharField(max_length=255, null=True, verbose_name="table")),
                (
                    "limit_column",
                    models.CharField(max_length=63, null=True, verbose_name="column of the limit key"),
                ),
                (
                    "group_column",
                    models.CharField(max_length=63, null=True, verbose_name="column of the group"),
                ),
                ("keeps", models.BooleanField(db_default=False, verbose_name="keeps its rows")),
                ("swept_to", models.BigIntegerField(db_default=0, verbose_name="swept to")),
            ],
            options={
                "verbose_name": "declared task",
                "verbose_name_plural": "declared tasks",
                "db_table": "pgqueue_task",
                "default_permissions": (),
                "managed": False,
                "required_db_vendor": "postgresql",
            },
        ),
        migrations.CreateModel(
            name="FailureGroup",
            fields=[
                (
                    "fingerprint",
                    models.CharField(
                        max_length=40, primary_key=True, serialize=False, verbose_name="fingerprint"
                    ),
                ),
                ("error_class", models.CharField(max_length=255, verbose_name="error class")),
                ("message", models.CharField(max_length=500, verbose_name="message")),
                ("traceback", models.TextField(verbose_name="traceback")),
                ("sample_job", models.BigIntegerField(verbose_name="newest job")),
                ("failed", models.BigIntegerField(db_default=0, verbose_name="failed")),
                ("retried", models.BigIntegerField(db_default=0, verbose_name="retried")),
                ("first_seen", models.DateTimeField(verbose_name="first seen")),
                ("last_seen", models.DateTimeField(verbose_name="last seen")),
                ("tasks", ArrayColumn("text", default=list, verbose_name="tasks")),
                ("versions", ArrayColumn("text", default=list, verbose_name="versions")),
                (
                    "is_news",
                    models.BooleanField(db_default=True, editable=False, verbose_name="new or changed"),
                ),
                (
                    "told",
                    models.BigIntegerField(
                        db_default=0, editable=False, verbose_name="failed at the last alert"
                    ),
                ),
                ("muted_at", models.DateTimeField(blank=True, null=True, verbose_name="muted at")),
                (
                    "muted_by",
                    models.CharField(blank=True, db_default="", max_length=150, verbose_name="muted by"),
                ),
            ],
            options={
                "verbose_name": "group of failures",
                "verbose_name_plural": "groups of failures",
                "db_table": "pgqueue_failure_group",
                "permissions": (("mute_failuregroup", "Can mute group of failures"),),
                "default_permissions": (),
                "required_db_vendor": "postgresql",
            },
        ),
        migrations.CreateModel(
            name="FailureCount",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("span", models.CharField(max_length=8, verbose_name="span")),
                ("start", models.DateTimeField(verbose_name="start")),
                ("fingerprint", models.CharField(max_length=40, verbose_name="fingerprint")),
                ("task_path", models.CharField(max_length=255, verbose_name="task")),
                ("queue_name", models.CharField(max_length=100, verbose_name="queue")),
                ("version", models.CharField(max_length=50, verbose_name="version")),
                ("failed", models.BigIntegerField(default=0, verbose_name="failed")),
                ("retried", models.BigIntegerField(default=0, verbose_name="retried")),
            ],
            options={
                "verbose_name": "count of failures",
                "verbose_name_plural": "counts of failures",
                "db_table": "pgqueue_failure_count",
                "default_permissions": (),
                "required_db_vendor": "postgresql",
                "indexes": [
                    models.Index(fields=["fingerprint", "span", "start"], name="pgqueue_failure_count_group")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("span", "start", "fingerprint", "task_path", "queue_name", "version"),
                        name="pgqueue_failure_count_key",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RaisedAlert",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=20, verbose_name="kind")),
                ("queue_name", models.CharField(blank=True, max_length=100, verbose_name="queue")),
                ("text", models.TextField(verbose_name="text")),
                ("raised_at", models.DateTimeField(verbose_name="raised at")),
                ("over_since", models.DateTimeField(null=True, verbose_name="over since")),
            ],
            options={
                "verbose_name": "alert",
                "verbose_name_plural": "alerts",
                "db_table": "pgqueue_alert",
                "default_permissions": (),
                "required_db_vendor": "postgresql",
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "queue_name"), name="pgqueue_alert_key")
                ],
            },
        ),
        # What Django cannot make: partitions, storage parameters, keys without an index for LIKE. The state
        # has the models.
        migrations.SeparateDatabaseAndState(
            database_operations=[
                RunSQLFile(f"tables/{name}.sql") for name in ["job", "flows", "maintenance"]
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
                        ("run_after", models.DateTimeField(db_default=Now(), verbose_name="run after")),
                        (
                            "expires_at",
                            models.DateTimeField(blank=True, null=True, verbose_name="expires at"),
                        ),
                        ("enqueued_at", models.DateTimeField(db_default=Now(), verbose_name="enqueued at")),
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
                            ArrayColumn(
                                "bigint",
                                blank=True,
                                db_column="parents",
                                null=True,
                                verbose_name="enqueued after",
                            ),
                        ),
                        (
                            "searched",
                            ArrayColumn("text", blank=True, null=True, verbose_name="indexed arguments"),
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
                                blank=True, db_default="", max_length=40, verbose_name="error fingerprint"
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
                migrations.CreateModel(
                    name="UniqueWindow",
                    fields=[
                        (
                            "unique_key",
                            models.CharField(
                                max_length=200, primary_key=True, serialize=False, verbose_name="unique key"
                            ),
                        ),
                        ("job_id", models.BigIntegerField(verbose_name="job")),
                        ("until", models.DateTimeField(verbose_name="until")),
                    ],
                    options={
                        "verbose_name": "window of a unique key",
                        "verbose_name_plural": "windows of unique keys",
                        "db_table": "pgqueue_window",
                        "default_permissions": (),
                        "required_db_vendor": "postgresql",
                    },
                ),
                migrations.CreateModel(
                    name="RateState",
                    fields=[
                        (
                            "key",
                            models.CharField(
                                db_collation="C",
                                max_length=200,
                                primary_key=True,
                                serialize=False,
                                verbose_name="limit key",
                            ),
                        ),
                        ("tat", models.DateTimeField(verbose_name="theoretical arrival time")),
                    ],
                    options={
                        "verbose_name": "state of a rate",
                        "verbose_name_plural": "states of rates",
                        "db_table": "pgqueue_rate",
                        "default_permissions": (),
                        "required_db_vendor": "postgresql",
                    },
                ),
                migrations.CreateModel(
                    name="Step",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "job_id",
                                "name",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("job_id", models.BigIntegerField(verbose_name="job")),
                        ("name", models.CharField(max_length=100, verbose_name="name")),
                        (
                            "kind",
                            models.CharField(
                                choices=[
                                    ("step", "step"),
                                    ("sleep", "sleep"),
                                    ("event", "event"),
                                    ("timeout", "no event in time"),
                                ],
                                db_default="step",
                                max_length=8,
                                verbose_name="kind",
                            ),
                        ),
                        ("attempt", models.IntegerField(db_default=0, verbose_name="attempt")),
                        ("seconds", models.FloatField(null=True, verbose_name="duration in seconds")),
                        ("wake_at", models.DateTimeField(null=True, verbose_name="wakes at")),
                        ("finished_at", models.DateTimeField(null=True, verbose_name="finished at")),
                        (
                            "inputs",
                            models.BigIntegerField(null=True, verbose_name="checksum of the arguments"),
                        ),
                        ("result", models.JSONField(null=True, verbose_name="result")),
                    ],
                    options={
                        "verbose_name": "step",
                        "verbose_name_plural": "steps",
                        "db_table": "pgqueue_step",
                        "default_permissions": (),
                        "required_db_vendor": "postgresql",
                    },
                ),
                migrations.CreateModel(
                    name="Edge",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "parent_id",
                                "child_id",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("parent_id", models.BigIntegerField(verbose_name="parent")),
                        ("child_id", models.BigIntegerField(verbose_name="child")),
                        (
                            "if_failed",
                            models.CharField(
                                choices=[
                                    ("hold", "wait until it is retried"),
                                    ("cancel", "cancel"),
                                    ("run", "run all the same"),
                                ],
                                db_default="hold",
                                max_length=6,
                                verbose_name="if the parent fails",
                            ),
                        ),
                        (
                            "overdue",
                            models.CharField(
                                max_length=16, null=True, verbose_name="end that maintenance has to settle"
                            ),
                        ),
                    ],
                    options={
                        "verbose_name": "dependency",
                        "verbose_name_plural": "dependencies",
                        "db_table": "pgqueue_edge",
                        "default_permissions": (),
                        "required_db_vendor": "postgresql",
                    },
                ),
                migrations.CreateModel(
                    name="JobBatch",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "name",
                            models.CharField(blank=True, db_default="", max_length=200, verbose_name="name"),
                        ),
                        (
                            "is_open",
                            models.BooleanField(db_default=True, verbose_name="open for more members"),
                        ),
                        ("created_at", models.DateTimeField(db_default=Now(), verbose_name="created at")),
                        (
                            "cancel_requested_at",
                            models.DateTimeField(blank=True, null=True, verbose_name="cancel requested at"),
                        ),
                        (
                            "finished_at",
                            models.DateTimeField(blank=True, null=True, verbose_name="finished at"),
                        ),
                        (
                            "outcome",
                            models.CharField(
                                blank=True,
                                choices=[("done", "done"), ("failed", "failed"), ("cancelled", "cancelled")],
                                db_default="",
                                max_length=16,
                                verbose_name="outcome",
                            ),
                        ),
                    ],
                    options={
                        "verbose_name": "batch",
                        "verbose_name_plural": "batches",
                        "db_table": "pgqueue_batch",
                        "default_permissions": ("view",),
                        "required_db_vendor": "postgresql",
                    },
                ),
                migrations.CreateModel(
                    name="Tally",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "batch_id",
                                "slot",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("batch_id", models.BigIntegerField(verbose_name="batch")),
                        ("slot", models.BigIntegerField(verbose_name="slot")),
                        ("added", models.IntegerField(db_default=0, verbose_name="added")),
                        ("done", models.IntegerField(db_default=0, verbose_name="done")),
                        ("failed", models.IntegerField(db_default=0, verbose_name="failed")),
                        ("cancelled", models.IntegerField(db_default=0, verbose_name="cancelled")),
                    ],
                    options={
                        "verbose_name": "numbers of a batch",
                        "verbose_name_plural": "numbers of batches",
                        "db_table": "pgqueue_tally",
                        "default_permissions": (),
                        "required_db_vendor": "postgresql",
                    },
                ),
                migrations.CreateModel(
                    name="JobProgress",
                    fields=[
                        (
                            "job",
                            models.OneToOneField(
                                db_constraint=False,
                                on_delete=models.DO_NOTHING,
                                primary_key=True,
                                related_name="live_progress",
                                serialize=False,
                                to="django_pgqueue.job",
                            ),
                        ),
                        ("at", models.DateTimeField(db_default=Now(), verbose_name="reported at")),
                        ("done", models.FloatField(verbose_name="done")),
                        ("total", models.FloatField(null=True, verbose_name="total")),
                        ("note", models.CharField(db_default="", max_length=200, verbose_name="note")),
                    ],
                    options={
                        "verbose_name": "progress",
                        "verbose_name_plural": "progress",
                        "db_table": "pgqueue_progress",
                        "default_permissions": (),
                        "required_db_vendor": "postgresql",
                    },
                ),
                migrations.CreateModel(
                    name="JobStack",
                    fields=[
                        (
                            "job_id",
                            models.BigIntegerField(primary_key=True, serialize=False, verbose_name="job"),
                        ),
                        ("lease", models.BigIntegerField(verbose_name="lease")),
                        ("requested_at", models.DateTimeField(db_default=Now(), verbose_name="requested at")),
                        ("taken_at", models.DateTimeField(null=True, verbose_name="taken at")),
                        ("at_end", models.BooleanField(db_default=False, verbose_name="at the end")),
                        ("lines", models.TextField(db_default="", verbose_name="stack")),
                    ],
                    options={
                        "verbose_name": "stack",
                        "verbose_name_plural": "stacks",
                        "db_table": "pgqueue_stack",
                        "default_permissions": (),
                        "required_db_vendor": "postgresql",
                    },
                ),
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
                        ("wait_histogram", ArrayColumn("bigint", default=list, verbose_name="waiting times")),
                        ("run_histogram", ArrayColumn("bigint", default=list, verbose_name="running times")),
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
                            models.DateTimeField(db_default=Now(), verbose_name="last changed at"),
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
                migrations.CreateModel(
                    name="FailureNote",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("at", models.DateTimeField(db_default=Now(), verbose_name="time")),
                        ("fingerprint", models.CharField(max_length=40, verbose_name="fingerprint")),
                        ("task_path", models.CharField(max_length=255, verbose_name="task")),
                        ("queue_name", models.CharField(max_length=100, verbose_name="queue")),
                        ("version", models.CharField(max_length=50, verbose_name="version")),
                        ("failed", models.IntegerField(verbose_name="failed")),
                        ("retried", models.IntegerField(verbose_name="retried")),
                        ("job_id", models.BigIntegerField(verbose_name="job")),
                        ("error_class", models.CharField(max_length=255, verbose_name="error class")),
                        ("message", models.CharField(max_length=500, verbose_name="message")),
                        ("traceback", models.TextField(verbose_name="traceback")),
                    ],
                    options={
                        "verbose_name": "note of failures",
                        "verbose_name_plural": "notes of failures",
                        "db_table": "pgqueue_failure_note",
                        "default_permissions": (),
                        "required_db_vendor": "postgresql",
                    },
                ),
            ],
        ),
        RunSQLFile("tables/indexes.sql"),
        RunSQLFile("tables/comments.sql", "SELECT 1"),
    ]
