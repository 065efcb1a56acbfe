from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

from django_pgqueue.operations import PayloadTriggers


class Migration(migrations.Migration):
    dependencies = [
        ("django_pgqueue", "0002_functions"),
        ("search", "0002_flows"),
    ]

    operations = [
        migrations.CreateModel(
            name="Export",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        db_constraint=False,
                        db_default=models.Func(
                            models.Value("pgqueue_job_id_seq"),
                            function="nextval",
                            output_field=models.BigIntegerField(),
                        ),
                        editable=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="%(app_label)s_%(class)s",
                        serialize=False,
                        to="django_pgqueue.job",
                        verbose_name="job",
                    ),
                ),
                ("query", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("documents", models.IntegerField(editable=False, null=True)),
                ("content", models.TextField(blank=True, editable=False)),
            ],
            options={"ordering": ["-pk"]},
        ),
        PayloadTriggers("Export", "example_project.search.tasks.write_export"),
    ]
