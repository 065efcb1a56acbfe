from __future__ import annotations

import django.contrib.postgres.search
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("search", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Run",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("batch_id", models.BigIntegerField(unique=True)),
                ("started_at", models.DateTimeField(auto_now_add=True)),
                ("files", models.IntegerField()),
                ("summary", models.JSONField(null=True)),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
        migrations.CreateModel(
            name="Draft",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("data", models.BinaryField()),
                ("size", models.BigIntegerField()),
                ("modified", models.BigIntegerField()),
                ("digest", models.CharField(max_length=64)),
                ("title", models.TextField(blank=True)),
                ("text", models.TextField(blank=True)),
                ("vector", django.contrib.postgres.search.SearchVectorField(null=True)),
                (
                    "document",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="search.document"),
                ),
            ],
        ),
        migrations.AddField(
            model_name="document",
            name="run",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="documents",
                to="search.run",
            ),
        ),
    ]
