"""The tables and their indexes."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import migrations, models
from django.db.models.functions import Now

from ..models.fields import ArrayColumn
from ..operations import RunSQLFile

FIRST_TIME, LAST_TIME = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


def table(model: str, options: dict[str, Any], /, **columns: Any) -> migrations.CreateModel:
    """Return the operation that creates a table, with its columns in this order."""
    options = {"required_db_vendor": "postgresql", **options}
    return migrations.CreateModel(model, [*columns.items()], options)


def statistics() -> dict[str, Any]:
    """Return the columns with what jobs of a task have done, for a minute and for a longer span."""
    return {
        "queue_name": models.CharField("queue", max_length=100),
        "task_path": models.CharField("task", max_length=255),
        "done": models.BigIntegerField("done", default=0),
        "failed": models.BigIntegerField("failed", default=0),
        "retried": models.BigIntegerField("retried", default=0),
        "cancelled": models.BigIntegerField("cancelled", default=0),
        "wait_histogram": ArrayColumn("bigint", "waiting times", default=list),
        "run_histogram": ArrayColumn("bigint", "running times", default=list),
        "wait_seconds": models.FloatField("seconds waited", default=0),
        "run_seconds": models.FloatField("seconds run", default=0),
    }


def is_time(column: str) -> models.Q:
    """Return the condition for a time that may be missing."""
    times = FIRST_TIME, LAST_TIME
    return models.Q((f"{column}__isnull", True), (f"{column}__range", times), _connector="OR")


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        table(
            "QueueStatus",
            {"db_table": "pgqueue_status", "managed": False, "default_permissions": ()},
            status=models.CharField(max_length=16, primary_key=True, serialize=False),
            is_claimable=models.BooleanField(),
            is_terminal=models.BooleanField(),
        ),
        table(
            "Ring",
            {"db_table": "pgqueue_ring", "managed": False, "default_permissions": ()},
            one=models.BooleanField(primary_key=True, serialize=False),
            current=models.SmallIntegerField(),
            since=models.DateTimeField(),
            retention=models.DurationField(),
            failed_retention=models.DurationField(),
        ),
        table(
            "Queue",
            {"db_table": "pgqueue_queue", "verbose_name": "queue", "verbose_name_plural": "queues"},
            name=models.CharField(
                "name",
                max_length=100,
                primary_key=True,
                serialize=False,
                validators=[
                    RegexValidator(
                        "\\A[A-Za-z0-9_.-]+\\Z", "Use only letters, digits and the characters _ - ."
                    )
                ],
            ),
            retention=models.DurationField(
                "keep done and cancelled jobs for",
                blank=True,
                help_text="“90 00:00:00” means 90 days. Zero keeps nothing; empty uses RETENTION.",
                null=True,
            ),
            failed_retention=models.DurationField(
                "keep failed jobs for",
                blank=True,
                help_text="“90 00:00:00” means 90 days. Zero keeps nothing; empty uses FAILED_RETENTION.",
                null=True,
            ),
            backoff_base=models.FloatField(
                "first wait before a retry, in seconds",
                blank=True,
                null=True,
                validators=[MinValueValidator(0)],
            ),
            backoff_ceiling=models.FloatField(
                "longest wait before a retry, in seconds",
                blank=True,
                null=True,
                validators=[MinValueValidator(0)],
            ),
        ),
        table(
            "Worker",
            {
                "db_table": "pgqueue_worker",
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "default_permissions": ("view",),
                "permissions": (("drain_worker", "Can stop or replace worker"),),
            },
            id=models.BigIntegerField("id", primary_key=True, serialize=False),
            host=models.CharField("host", max_length=255),
            pid=models.IntegerField("process"),
            supervisor=models.BigIntegerField("supervisor", blank=True, null=True),
            queues=ArrayColumn("text", "queues", default=list),
            exclude_queues=ArrayColumn("text", "all queues but", db_default=[], default=list),
            slots=models.IntegerField("slots"),
            version=models.CharField("version", max_length=50),
            state=models.CharField(
                "state",
                choices=[("running", "running"), ("draining", "draining")],
                db_default="running",
                max_length=10,
            ),
            last_group=models.CharField(
                "group of its last job", blank=True, db_default="", editable=False, max_length=200
            ),
            drain=models.CharField(
                "asked to end",
                blank=True,
                choices=[("replace", "to be replaced"), ("stop", "with all its processes")],
                db_default="",
                max_length=8,
            ),
            holds_lock=models.BooleanField(
                "holds its lock",
                db_default=True,
                help_text="Its process holds a session lock while it lives, except behind a pooler.",
            ),
            memory=models.BigIntegerField("memory in bytes", blank=True, null=True),
            started_at=models.DateTimeField("started at", db_default=Now()),
            heartbeat_at=models.DateTimeField("last heartbeat", db_default=Now()),
            started_jobs=ArrayColumn("bigint", "jobs that had started at the last heartbeat", null=True),
            lost=models.IntegerField("slots taken by lost jobs", db_default=0, default=0),
        ),
        table(
            "JobStat",
            {
                "db_table": "pgqueue_stat",
                "verbose_name": "statistic",
                "verbose_name_plural": "tasks",
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("minute", "queue_name", "task_path", "rolled_up"), name="pgqueue_stat_key"
                    )
                ],
            },
            id=models.BigAutoField(primary_key=True, serialize=False),
            minute=models.DateTimeField("minute"),
            rolled_up=models.BooleanField("rolled up", default=False, editable=False),
            **statistics(),
        ),
        table(
            "Schedule",
            {
                "db_table": "pgqueue_schedule",
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "permissions": (
                    ("pause_schedule", "Can pause and resume schedule"),
                    ("enqueue_schedule", "Can run schedule now"),
                ),
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
                        condition=models.Q(*map(is_time, ["next_run_at", "last_run_at", "since"])),
                        name="pgqueue_schedule_times",
                    ),
                ],
            },
            name=models.CharField(
                "name",
                max_length=200,
                primary_key=True,
                serialize=False,
                validators=[
                    RegexValidator(
                        "\\A[A-Za-z0-9_.:-]+\\Z", "Use only letters, digits and the characters _ - . and :"
                    )
                ],
            ),
            task_path=models.CharField("task", help_text="For example: shop.tasks.report", max_length=255),
            args=models.JSONField("positional arguments", blank=True, db_default=[], default=list),
            kwargs=models.JSONField("keyword arguments", blank=True, db_default={}, default=dict),
            queue_name=models.CharField(
                "queue", blank=True, help_text="Empty: the queue of the task.", max_length=100, null=True
            ),
            priority=models.SmallIntegerField(
                "priority",
                blank=True,
                help_text="Empty: the priority of the task.",
                null=True,
                validators=[MinValueValidator(-100), MaxValueValidator(100)],
            ),
            cron=models.CharField(
                "cron expression",
                blank=True,
                help_text="Minute, hour, day, month, weekday. “0 3 * * 1-5”: weekdays at 3:00.",
                max_length=100,
                null=True,
            ),
            every=models.DurationField(
                "interval", blank=True, help_text="Instead of a cron expression. “00:00:30”: 30 s.", null=True
            ),
            timezone=models.CharField("time zone", db_default="UTC", default="UTC", max_length=64),
            catch_up=models.CharField(
                "missed runs",
                choices=[
                    ("skip", "skip them"),
                    ("latest", "run the latest"),
                    ("all", "run all, up to the limit"),
                ],
                db_default="latest",
                default="latest",
                max_length=8,
            ),
            catch_up_limit=models.IntegerField(
                "limit",
                db_default=100,
                default=100,
                help_text="The most missed runs that are caught up, and the most runs that wait for a job.",
                validators=[MinValueValidator(1), MaxValueValidator(10000)],
            ),
            overlap=models.CharField(
                "while the previous job is not finished",
                choices=[("allow", "run beside it"), ("skip", "skip the run"), ("queue", "run after it")],
                db_default="allow",
                default="allow",
                max_length=8,
            ),
            jitter=models.DurationField(
                "jitter",
                db_default=timedelta(0),
                default=timedelta(0),
                help_text="Each job starts up to this much later, at random.",
            ),
            source=models.CharField(
                "declared in",
                choices=[("code", "code"), ("settings", "settings"), ("admin", "admin")],
                db_default="admin",
                default="admin",
                editable=False,
                max_length=8,
            ),
            declared_by=models.CharField(
                "module", blank=True, db_default="", default="", editable=False, max_length=255
            ),
            declared=models.JSONField("declared values", blank=True, editable=False, null=True),
            overridden=models.JSONField(
                "overridden fields", blank=True, db_default=[], default=list, editable=False
            ),
            policy=models.JSONField("policy of the task", blank=True, editable=False, null=True),
            paused_at=models.DateTimeField("paused at", blank=True, editable=False, null=True),
            pause_author=models.CharField(
                "paused by", blank=True, db_default="", default="", editable=False, max_length=255
            ),
            pause_reason=models.CharField(
                "reason", blank=True, db_default="", default="", editable=False, max_length=500
            ),
            retired_at=models.DateTimeField("retired at", blank=True, editable=False, null=True),
            next_run_at=models.DateTimeField("next run at", blank=True, editable=False, null=True),
            last_run_at=models.DateTimeField("last run at", blank=True, editable=False, null=True),
            since=models.DateTimeField("timing set at", blank=True, editable=False, null=True),
            owed=models.JSONField("timings before", blank=True, editable=False, null=True),
            live_jobs=ArrayColumn("bigint", "jobs that may be live", db_default=[], default=list),
            waiting=models.IntegerField("waiting runs", db_default=0, default=0, editable=False),
            created_at=models.DateTimeField("created at", db_default=Now(), editable=False),
            updated_at=models.DateTimeField("last changed", db_default=Now(), editable=False),
        ),
        table(
            "ScheduleRun",
            {
                "db_table": "pgqueue_schedule_run",
                "verbose_name": "run",
                "verbose_name_plural": "runs",
                "default_permissions": ("view",),
                "indexes": [models.Index(fields=["run_at"], name="pgqueue_run_age")],
                "constraints": [
                    models.UniqueConstraint(fields=("schedule", "run_at"), name="pgqueue_run_once")
                ],
            },
            id=models.BigAutoField(primary_key=True, serialize=False),
            run_at=models.DateTimeField("run at"),
            job_id=models.BigIntegerField("job", null=True),
            outcome=models.CharField(
                "outcome",
                choices=[
                    ("enqueued", "enqueued"),
                    ("waiting", "waiting for the previous job"),
                    ("skipped", "skipped, because the previous job was not finished"),
                    ("existing", "skipped, because another job had its unique key"),
                    ("replaced", "took the place of a waiting job with its unique key"),
                    ("missed", "missed, because no worker was there"),
                    ("manual", "enqueued by a user"),
                ],
                max_length=8,
            ),
            schedule=models.ForeignKey(
                db_column="schedule",
                db_index=False,
                on_delete=models.CASCADE,
                related_name="runs",
                to="django_pgqueue.schedule",
                verbose_name="schedule",
            ),
        ),
        table(
            "Limit",
            {
                "db_table": "pgqueue_limit",
                "verbose_name": "limit",
                "verbose_name_plural": "limits",
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
            name=models.CharField(
                "name",
                help_text="The path of a task, a name in code, “queue:mail” for a queue, “*” for all jobs.",
                max_length=200,
                primary_key=True,
                serialize=False,
                validators=[
                    RegexValidator("\\A[^/]+\\Z", "Leave out the slash: a limit applies to each of its keys.")
                ],
            ),
            concurrency=models.IntegerField(
                "jobs at once",
                blank=True,
                null=True,
                validators=[
                    MinValueValidator(1, "At least 1. To let no job start, pause the queue or the task."),
                    MaxValueValidator(2147483647),
                ],
            ),
            on_full=models.CharField(
                "a job that finds no room",
                choices=[
                    ("wait", "it waits"),
                    ("cancel_new", "it is cancelled"),
                    ("cancel_old", "it replaces older ones"),
                ],
                db_default="wait",
                max_length=10,
            ),
            declared_concurrency=models.IntegerField(
                "declared in code", blank=True, editable=False, null=True
            ),
            rate=models.IntegerField(
                "starts",
                blank=True,
                null=True,
                validators=[
                    MinValueValidator(1, "At least 1. To let no job start, pause the queue or the task."),
                    MaxValueValidator(2147483647),
                ],
            ),
            per=models.DurationField(
                "in a period of",
                blank=True,
                help_text="The time in which so many jobs may start, such as 0:01:00.",
                null=True,
            ),
            burst=models.IntegerField(
                "burst",
                blank=True,
                help_text="How many may start at once after a quiet time. Empty: 1.",
                null=True,
                validators=[MinValueValidator(1, "At least 1."), MaxValueValidator(2147483647)],
            ),
            declared_rate=models.IntegerField(blank=True, editable=False, null=True),
            declared_per=models.DurationField(blank=True, editable=False, null=True),
            declared_burst=models.IntegerField(blank=True, editable=False, null=True),
            declared_by=models.CharField(blank=True, db_default="", editable=False, max_length=255),
            is_overridden=models.BooleanField("set by a user", db_default=False, editable=False),
        ),
        table(
            "Pause",
            {
                "db_table": "pgqueue_pause",
                "verbose_name": "pause",
                "verbose_name_plural": "pauses",
                "constraints": (
                    models.UniqueConstraint(fields=("kind", "name"), name="pgqueue_pause_target"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("kind__in", ["queue", "task", "group", "limit_key", "argument"]),
                                models.Q(("name", ""), _negated=True),
                            ),
                            models.Q(("kind", "all"), ("name", "")),
                            _connector="OR",
                        ),
                        name="pgqueue_pause_kind",
                    ),
                ),
            },
            id=models.BigAutoField(primary_key=True, serialize=False),
            kind=models.CharField(
                "what",
                choices=[
                    ("queue", "queue"),
                    ("task", "task"),
                    ("all", "everything"),
                    ("group", "group"),
                    ("limit_key", "limit key"),
                    ("argument", "argument"),
                ],
                max_length=16,
            ),
            name=models.CharField(
                "name",
                blank=True,
                db_default="",
                help_text="The name of a queue, the path of a task, a group, a limit key such as crm/acme, "
                "or a task and an argument, such as shop.tasks.sync kwargs.tenant=acme. "
                "Empty for everything.",
                max_length=255,
            ),
            reason=models.CharField("reason", blank=True, db_default="", max_length=400),
            author=models.CharField("paused by", blank=True, db_default="", max_length=150),
            paused_at=models.DateTimeField("paused at", db_default=Now()),
            until=models.DateTimeField("until", blank=True, null=True),
        ),
        table(
            "DeclaredTask",
            {"db_table": "pgqueue_task", "managed": False, "default_permissions": ()},
            task_path=models.CharField(max_length=255, primary_key=True, serialize=False),
            queue_name=models.CharField(max_length=100),
            priority=models.SmallIntegerField(),
            max_attempts=models.IntegerField(null=True),
            timeout=models.IntegerField(null=True),
            on_lost=models.CharField(max_length=8, null=True),
            expires_after=models.FloatField(null=True),
            metadata=models.JSONField(default=dict),
            limit_name=models.CharField(max_length=200, null=True),
            unique_options=models.JSONField(null=True),
            computed_keys=models.JSONField(default=list),
            search=models.JSONField(null=True),
            model=models.CharField(max_length=255, null=True),
            relation=models.CharField(max_length=255, null=True),
            limit_column=models.CharField(max_length=63, null=True),
            group_column=models.CharField(max_length=63, null=True),
            keeps=models.BooleanField(db_default=False),
            swept_to=models.BigIntegerField(db_default=0),
        ),
        table(
            "FailureGroup",
            {
                "db_table": "pgqueue_failure_group",
                "verbose_name": "group of failures",
                "verbose_name_plural": "groups of failures",
                "permissions": (("mute_failuregroup", "Can mute group of failures"),),
                "default_permissions": (),
            },
            fingerprint=models.CharField("fingerprint", max_length=40, primary_key=True, serialize=False),
            error_class=models.CharField("error class", max_length=255),
            message=models.CharField("message", max_length=500),
            traceback=models.TextField("traceback"),
            sample_job=models.BigIntegerField("newest job"),
            failed=models.BigIntegerField("failed", db_default=0),
            retried=models.BigIntegerField("retried", db_default=0),
            first_seen=models.DateTimeField("first seen"),
            last_seen=models.DateTimeField("last seen"),
            tasks=ArrayColumn("text", "tasks", default=list),
            versions=ArrayColumn("text", "versions", default=list),
            is_news=models.BooleanField("new or changed", db_default=True, editable=False),
            alerted=models.BigIntegerField("failed at the last alert", db_default=0, editable=False),
            muted_at=models.DateTimeField("muted at", blank=True, null=True),
            muted_by=models.CharField("muted by", blank=True, db_default="", max_length=150),
        ),
        table(
            "FailureCount",
            {
                "db_table": "pgqueue_failure_count",
                "verbose_name": "count of failures",
                "verbose_name_plural": "counts of failures",
                "indexes": [
                    models.Index(fields=["fingerprint", "span", "start"], name="pgqueue_failure_count_group")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("span", "start", "fingerprint", "task_path", "queue_name", "version"),
                        name="pgqueue_failure_count_key",
                    )
                ],
                "default_permissions": (),
            },
            id=models.BigAutoField(primary_key=True, serialize=False),
            span=models.CharField("span", max_length=8),
            start=models.DateTimeField("start"),
            fingerprint=models.CharField("fingerprint", max_length=40),
            task_path=models.CharField("task", max_length=255),
            queue_name=models.CharField("queue", max_length=100),
            version=models.CharField("version", max_length=50),
            failed=models.BigIntegerField("failed", default=0),
            retried=models.BigIntegerField("retried", default=0),
        ),
        table(
            "RaisedAlert",
            {
                "db_table": "pgqueue_alert",
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "queue_name"), name="pgqueue_alert_key")
                ],
                "default_permissions": (),
            },
            id=models.BigAutoField(primary_key=True, serialize=False),
            kind=models.CharField(max_length=20),
            queue_name=models.CharField(blank=True, max_length=100),
            text=models.TextField(),
            raised_at=models.DateTimeField(),
            over_since=models.DateTimeField(null=True),
        ),
        # What Django cannot make: partitions, storage parameters, keys without an index for LIKE. The state
        # has the models.
        migrations.SeparateDatabaseAndState(
            database_operations=[
                RunSQLFile(f"tables/{name}.sql") for name in ["job", "flows", "maintenance"]
            ],
            state_operations=[
                table(
                    "Job",
                    {
                        "db_table": "pgqueue_job",
                        "verbose_name": "job",
                        "verbose_name_plural": "jobs",
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
                    id=models.BigAutoField(primary_key=True, serialize=False),
                    shelf=models.SmallIntegerField("shelf", db_default=0, editable=False),
                    status=models.CharField(
                        "status",
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
                    ),
                    task_path=models.CharField("task", max_length=255),
                    args=models.JSONField("arguments", db_default=models.Value([], models.JSONField())),
                    kwargs=models.JSONField(
                        "keyword arguments", db_default=models.Value({}, models.JSONField())
                    ),
                    metadata=models.JSONField("metadata", db_default=models.Value({}, models.JSONField())),
                    queue_name=models.CharField("queue", db_default="default", max_length=100),
                    priority=models.SmallIntegerField("priority", db_default=0),
                    run_after=models.DateTimeField("run after", db_default=Now()),
                    expires_at=models.DateTimeField("expires at", blank=True, null=True),
                    enqueued_at=models.DateTimeField("enqueued at", db_default=Now()),
                    max_attempts=models.IntegerField("maximum attempts", blank=True, null=True),
                    timeout=models.IntegerField("timeout in seconds", blank=True, null=True),
                    on_lost=models.CharField("if the worker is lost", blank=True, max_length=8, null=True),
                    limit_key=models.CharField(
                        "limit key", blank=True, db_collation="C", max_length=200, null=True
                    ),
                    group_key=models.CharField(
                        "group", blank=True, db_collation="C", max_length=200, null=True
                    ),
                    wait_position=models.BigIntegerField(
                        "place in the wait queue of its limit key", blank=True, null=True
                    ),
                    unique_key=models.CharField("unique key", blank=True, max_length=200, null=True),
                    unique_scope=models.CharField(
                        "unique",
                        blank=True,
                        choices=[("waiting", "while it waits"), ("live", "until it has finished")],
                        max_length=8,
                        null=True,
                    ),
                    context=models.JSONField("context", blank=True, null=True),
                    tenant=models.CharField("tenant", blank=True, db_collation="C", max_length=63, null=True),
                    batch_id=models.BigIntegerField("batch", blank=True, db_column="batch", null=True),
                    parent_ids=ArrayColumn(
                        "bigint", "enqueued after", blank=True, db_column="parents", null=True
                    ),
                    searched=ArrayColumn("text", "indexed arguments", blank=True, null=True),
                    attempts=models.IntegerField("attempts", db_default=0),
                    forgiven_attempts=models.IntegerField(
                        "attempts before the last manual retry", db_default=0
                    ),
                    crash_count=models.SmallIntegerField("crashes", db_default=0),
                    lost_in_a_row=models.SmallIntegerField("lost in a row", db_default=0),
                    marks=models.SmallIntegerField("marks", db_default=0, editable=False),
                    current_step=models.CharField("current step", blank=True, db_default="", max_length=100),
                    worker=models.BigIntegerField("worker", blank=True, null=True),
                    lease=models.BigIntegerField("lease", blank=True, null=True),
                    started_at=models.DateTimeField("first started at", blank=True, null=True),
                    last_attempted_at=models.DateTimeField("last attempted at", blank=True, null=True),
                    deadline=models.DateTimeField("deadline", blank=True, null=True),
                    cancel_requested_at=models.DateTimeField("cancel requested at", blank=True, null=True),
                    waiting_reason=models.CharField("reason", blank=True, db_default="", max_length=500),
                    finished_at=models.DateTimeField("finished at", blank=True, null=True),
                    duration=models.FloatField("duration in seconds", blank=True, null=True),
                    result=models.JSONField("result", blank=True, null=True),
                    steps=models.JSONField("steps", blank=True, null=True),
                    errors=models.JSONField("errors", db_default=models.Value([], models.JSONField())),
                    error_fingerprint=models.CharField(
                        "error fingerprint", blank=True, db_default="", max_length=40
                    ),
                    logs=models.JSONField("logs", blank=True, null=True),
                ),
                table(
                    "UniqueWindow",
                    {"db_table": "pgqueue_window", "default_permissions": ()},
                    unique_key=models.CharField(max_length=200, primary_key=True, serialize=False),
                    job_id=models.BigIntegerField(),
                    until=models.DateTimeField(),
                ),
                table(
                    "RateState",
                    {"db_table": "pgqueue_rate", "default_permissions": ()},
                    key=models.CharField(db_collation="C", max_length=200, primary_key=True, serialize=False),
                    tat=models.DateTimeField(),
                ),
                table(
                    "Step",
                    {
                        "db_table": "pgqueue_step",
                        "verbose_name": "step",
                        "verbose_name_plural": "steps",
                        "default_permissions": (),
                    },
                    pk=models.CompositePrimaryKey(
                        "job_id", "name", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                    job_id=models.BigIntegerField("job"),
                    name=models.CharField("name", max_length=100),
                    kind=models.CharField(
                        "kind",
                        choices=[
                            ("step", "step"),
                            ("sleep", "sleep"),
                            ("event", "event"),
                            ("timeout", "no event in time"),
                        ],
                        db_default="step",
                        max_length=8,
                    ),
                    attempt=models.IntegerField("attempt", db_default=0),
                    seconds=models.FloatField("duration in seconds", null=True),
                    wake_at=models.DateTimeField("wakes at", null=True),
                    finished_at=models.DateTimeField("finished at", null=True),
                    inputs=models.BigIntegerField("checksum of the arguments", null=True),
                    result=models.JSONField("result", null=True),
                ),
                table(
                    "Edge",
                    {"db_table": "pgqueue_edge", "default_permissions": ()},
                    pk=models.CompositePrimaryKey(
                        "parent_id", "child_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                    parent_id=models.BigIntegerField(),
                    child_id=models.BigIntegerField(),
                    if_failed=models.CharField(
                        choices=[
                            ("hold", "wait until it is retried"),
                            ("cancel", "cancel"),
                            ("run", "run all the same"),
                        ],
                        db_default="hold",
                        max_length=6,
                    ),
                    overdue=models.CharField(max_length=16, null=True),
                ),
                table(
                    "JobBatch",
                    {
                        "db_table": "pgqueue_batch",
                        "verbose_name": "batch",
                        "verbose_name_plural": "batches",
                        "default_permissions": ("view",),
                    },
                    id=models.BigAutoField(primary_key=True, serialize=False),
                    name=models.CharField("name", blank=True, db_default="", max_length=200),
                    is_open=models.BooleanField("open for more members", db_default=True),
                    created_at=models.DateTimeField("created at", db_default=Now()),
                    cancel_requested_at=models.DateTimeField("cancel requested at", blank=True, null=True),
                    finished_at=models.DateTimeField("finished at", blank=True, null=True),
                    outcome=models.CharField(
                        "outcome",
                        blank=True,
                        choices=[("done", "done"), ("failed", "failed"), ("cancelled", "cancelled")],
                        db_default="",
                        max_length=16,
                    ),
                ),
                table(
                    "Tally",
                    {"db_table": "pgqueue_tally", "default_permissions": ()},
                    pk=models.CompositePrimaryKey(
                        "batch_id", "slot", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                    batch_id=models.BigIntegerField(),
                    slot=models.BigIntegerField(),
                    added=models.IntegerField(db_default=0),
                    done=models.IntegerField(db_default=0),
                    failed=models.IntegerField(db_default=0),
                    cancelled=models.IntegerField(db_default=0),
                ),
                table(
                    "JobProgress",
                    {"db_table": "pgqueue_progress", "default_permissions": ()},
                    job=models.OneToOneField(
                        db_constraint=False,
                        on_delete=models.DO_NOTHING,
                        primary_key=True,
                        related_name="live_progress",
                        serialize=False,
                        to="django_pgqueue.job",
                    ),
                    at=models.DateTimeField(db_default=Now()),
                    done=models.FloatField(),
                    total=models.FloatField(null=True),
                    note=models.CharField(db_default="", max_length=200),
                ),
                table(
                    "JobStack",
                    {"db_table": "pgqueue_stack", "default_permissions": ()},
                    job_id=models.BigIntegerField(primary_key=True, serialize=False),
                    lease=models.BigIntegerField(),
                    requested_at=models.DateTimeField(db_default=Now()),
                    taken_at=models.DateTimeField(null=True),
                    at_end=models.BooleanField(db_default=False),
                    lines=models.TextField(db_default=""),
                ),
                table(
                    "StatRollup",
                    {
                        "db_table": "pgqueue_stat_rollup",
                        "verbose_name": "sum of statistics",
                        "verbose_name_plural": "sums of statistics",
                        "constraints": [
                            models.UniqueConstraint(
                                fields=("span", "start", "queue_name", "task_path"),
                                name="pgqueue_stat_rollup_key",
                            )
                        ],
                        "default_permissions": (),
                    },
                    id=models.BigAutoField(primary_key=True, serialize=False),
                    **statistics(),
                    span=models.CharField(
                        "span",
                        choices=[
                            ("minute", "minute"),
                            ("quarter", "quarter of an hour"),
                            ("hour", "hour"),
                            ("day", "day"),
                            ("total", "total"),
                        ],
                        max_length=8,
                    ),
                    start=models.DateTimeField("start"),
                    updated_at=models.DateTimeField("last changed at", db_default=Now()),
                ),
                table(
                    "FailureNote",
                    {"db_table": "pgqueue_failure_note", "default_permissions": ()},
                    id=models.BigAutoField(primary_key=True, serialize=False),
                    at=models.DateTimeField(db_default=Now()),
                    fingerprint=models.CharField(max_length=40),
                    task_path=models.CharField(max_length=255),
                    queue_name=models.CharField(max_length=100),
                    version=models.CharField(max_length=50),
                    failed=models.IntegerField(),
                    retried=models.IntegerField(),
                    job_id=models.BigIntegerField(),
                    error_class=models.CharField(max_length=255),
                    message=models.CharField(max_length=500),
                    traceback=models.TextField(),
                ),
            ],
        ),
        RunSQLFile("tables/indexes.sql"),
        RunSQLFile("tables/comments.sql", "SELECT 1"),
    ]
