"""Rates: their state, the functions that decide and charge, and why a job does not start."""

from django.db import migrations, models

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0008_any_language")]

    operations = [
        # Not by Django, which would add a second index for LIKE to the key.
        migrations.SeparateDatabaseAndState(
            database_operations=[RunSQLFile("rate_v1.sql", "DROP TABLE pgqueue_rate")],
            state_operations=[
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
            ],
        ),
        RunSQLFile("starts_left_v1.sql", "DROP FUNCTION pgqueue_starts_left_v1"),
        RunSQLFile("next_start_v1.sql", "DROP FUNCTION pgqueue_next_start_v1"),
        RunSQLFile("settle_rates_v1.sql", "DROP FUNCTION pgqueue_settle_rates_v1"),
        RunSQLFile("charge_v1.sql", "DROP FUNCTION pgqueue_charge_v1"),
        RunSQLFile("charge_queues_v1.sql", "DROP FUNCTION pgqueue_charge_queues_v1"),
        RunSQLFile("take_rate_v1.sql", "DROP FUNCTION pgqueue_take_rate_v1"),
        RunSQLFile("take_rate.sql", "DROP FUNCTION pgqueue_take_rate"),
        # Why a job does not start
        RunSQLFile("blocked_by_v1.sql", "DROP FUNCTION pgqueue_blocked_by_v1"),
        RunSQLFile("blocked_by.sql", "DROP FUNCTION pgqueue_blocked_by"),
    ]
