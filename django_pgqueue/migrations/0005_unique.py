"""Unique keys: their windows, and the functions that meet the other job with the same key."""

from django.db import migrations, models

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0004_schedules")]

    operations = [
        # Not by Django, which would add a second index for LIKE to the key.
        migrations.SeparateDatabaseAndState(
            database_operations=[RunSQLFile("window_v1.sql", "DROP TABLE pgqueue_window")],
            state_operations=[
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
            ],
        ),
        RunSQLFile("context_problem_v1.sql", "DROP FUNCTION pgqueue_context_problem_v1"),
        RunSQLFile("options_problem_v1.sql", "DROP FUNCTION pgqueue_options_problem_v1"),
        RunSQLFile("twin_v1.sql", "DROP FUNCTION pgqueue_twin_v1"),
        RunSQLFile("insert_unique_v1.sql", "DROP FUNCTION pgqueue_insert_unique_v1"),
        RunSQLFile("finish_keyed_v1.sql", "DROP FUNCTION pgqueue_finish_keyed_v1"),
        RunSQLFile("give_back_each_v1.sql", "DROP FUNCTION pgqueue_give_back_each_v1"),
    ]
