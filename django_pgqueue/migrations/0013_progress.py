"""Progress: how far live jobs are, and the functions that write it."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0012_payloads")]

    operations = [
        # Not by Django, because of the storage parameters.
        migrations.SeparateDatabaseAndState(
            database_operations=[RunSQLFile("progress_v1.sql", "DROP TABLE pgqueue_progress")],
            state_operations=[
                migrations.CreateModel(
                    name="JobProgress",
                    fields=[
                        (
                            "job",
                            models.OneToOneField(
                                db_constraint=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                primary_key=True,
                                related_name="live_progress",
                                serialize=False,
                                to="django_pgqueue.job",
                            ),
                        ),
                        (
                            "at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(),
                                verbose_name="reported at",
                            ),
                        ),
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
            ],
        ),
        RunSQLFile("write_progress_v1.sql", "DROP FUNCTION pgqueue_write_progress_v1"),
        RunSQLFile("progress.sql", "DROP FUNCTION pgqueue_progress"),
    ]
