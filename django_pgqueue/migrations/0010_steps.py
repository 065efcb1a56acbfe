"""Steps of jobs: what they have recorded, and the functions that record, wait and send signals."""

from django.db import migrations, models

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0009_rates")]

    operations = [
        # Not by Django, because of the storage parameters.
        migrations.SeparateDatabaseAndState(
            database_operations=[RunSQLFile("step_v1.sql", "DROP TABLE pgqueue_step")],
            state_operations=[
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
            ],
        ),
        RunSQLFile("record_step_v1.sql", "DROP FUNCTION pgqueue_record_step_v1"),
        RunSQLFile("wait_v1.sql", "DROP FUNCTION pgqueue_wait_v1"),
        RunSQLFile("send_event_v1.sql", "DROP FUNCTION pgqueue_send_event_v1"),
        RunSQLFile("send_event.sql", "DROP FUNCTION pgqueue_send_event"),
        RunSQLFile("has_event_v1.sql", "DROP FUNCTION pgqueue_has_event_v1"),
        RunSQLFile("wake_steps_v1.sql", "DROP FUNCTION pgqueue_wake_steps_v1"),
        RunSQLFile("unfold_steps_v1.sql", "DROP FUNCTION pgqueue_unfold_steps_v1"),
        RunSQLFile("fold_steps_v1.sql", "DROP FUNCTION pgqueue_fold_steps_v1"),
        RunSQLFile("settle_v1.sql", "DROP FUNCTION pgqueue_settle_v1"),
    ]
