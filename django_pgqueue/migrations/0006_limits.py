"""Limits: the table, the indexes of slots and lines, and the functions."""

import datetime

import django.core.validators
from django.db import migrations, models

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0005_unique")]

    operations = [
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
                            django.core.validators.RegexValidator(
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
                            django.core.validators.MinValueValidator(
                                1, "At least 1. To let no job start, pause the queue or the task."
                            ),
                            django.core.validators.MaxValueValidator(2147483647),
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
                            django.core.validators.MinValueValidator(
                                1, "At least 1. To let no job start, pause the queue or the task."
                            ),
                            django.core.validators.MaxValueValidator(2147483647),
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
                        validators=[
                            django.core.validators.MinValueValidator(1, "At least 1."),
                            django.core.validators.MaxValueValidator(2147483647),
                        ],
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
                            models.Q(("burst__gte", 1), ("per__gt", datetime.timedelta(0)), ("rate__gte", 1)),
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
        RunSQLFile("job_slot_index_v1.sql", "DROP INDEX pgqueue_job_slot"),
        RunSQLFile("job_line_index_v1.sql", "DROP INDEX pgqueue_job_line"),
        RunSQLFile("limit_problem_v1.sql", "DROP FUNCTION pgqueue_limit_problem_v1"),
        RunSQLFile("key_problem_v1.sql", "DROP FUNCTION pgqueue_key_problem_v1"),
        # Who may start, and who comes next
        RunSQLFile("release_v1.sql", "DROP FUNCTION pgqueue_release_v1"),
        RunSQLFile("replace_v1.sql", "DROP FUNCTION pgqueue_replace_v1"),
        RunSQLFile("gate_v1.sql", "DROP FUNCTION pgqueue_gate_v1"),
        RunSQLFile("room_v1.sql", "DROP FUNCTION pgqueue_room_v1"),
        RunSQLFile("repair_lines_v1.sql", "DROP FUNCTION pgqueue_repair_lines_v1"),
        # Changes of a limit
        RunSQLFile("release_limit_v1.sql", "DROP FUNCTION pgqueue_release_limit_v1"),
        RunSQLFile("declare_limits_v1.sql", "DROP FUNCTION pgqueue_declare_limits_v1"),
        RunSQLFile("set_limit_v1.sql", "DROP FUNCTION pgqueue_set_limit_v1"),
        RunSQLFile("limit_name_v1.sql", "DROP FUNCTION pgqueue_limit_name_v1"),
        RunSQLFile("set_limit.sql", "DROP FUNCTION pgqueue_set_limit"),
        RunSQLFile("reset_limit_v1.sql", "DROP FUNCTION pgqueue_reset_limit_v1"),
        RunSQLFile("reset_limit.sql", "DROP FUNCTION pgqueue_reset_limit"),
    ]
