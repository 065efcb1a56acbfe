"""Groups of failures: the tables, the functions that fill them, the indexes of their jobs, and alerts."""

import django.db.models.functions.datetime
from django.db import migrations, models

import django_pgqueue.models.fields

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [
        ("django_pgqueue", "0015_why"),
    ]

    operations = [
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
                (
                    "tasks",
                    django_pgqueue.models.fields.ArrayColumn("text", default=list, verbose_name="tasks"),
                ),
                (
                    "versions",
                    django_pgqueue.models.fields.ArrayColumn("text", default=list, verbose_name="versions"),
                ),
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
        # Not by Django, because of the storage parameters.
        migrations.SeparateDatabaseAndState(
            database_operations=[RunSQLFile("failure_note_v1.sql", "DROP TABLE pgqueue_failure_note")],
            state_operations=[
                migrations.CreateModel(
                    name="FailureNote",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), verbose_name="time"
                            ),
                        ),
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
        RunSQLFile("job_live_fingerprint_index_v1.sql", "DROP INDEX pgqueue_job_live_fingerprint"),
        RunSQLFile("job_kept_fingerprint_index_v1.sql", "DROP INDEX pgqueue_job_kept_fingerprint"),
        RunSQLFile("note_failures_v1.sql", "DROP FUNCTION pgqueue_note_failures_v1"),
        RunSQLFile("fold_failures_v1.sql", "DROP FUNCTION pgqueue_fold_failures_v1"),
        RunSQLFile("forget_failures_v1.sql", "DROP FUNCTION pgqueue_forget_failures_v1"),
        RunSQLFile("tell_failures_v1.sql", "DROP FUNCTION pgqueue_tell_failures_v1"),
    ]
