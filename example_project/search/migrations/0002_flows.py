from __future__ import annotations

import django.contrib.postgres.search
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("search", "0001_initial")]

    operations = [
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
    ]
