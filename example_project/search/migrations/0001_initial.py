from __future__ import annotations

import django.contrib.postgres.indexes
import django.contrib.postgres.search
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Document",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("path", models.TextField(unique=True)),
                ("size", models.BigIntegerField()),
                ("modified", models.BigIntegerField()),
                ("digest", models.CharField(blank=True, editable=False, max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[("waiting", "waiting"), ("indexed", "indexed"), ("failed", "failed")],
                        default="waiting",
                        max_length=10,
                    ),
                ),
                (
                    "cause",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("gone", "gone"),
                            ("unreadable", "unreadable"),
                            ("too_large", "too large"),
                            ("not_text", "not text"),
                        ],
                        max_length=10,
                    ),
                ),
                ("reason", models.TextField(blank=True)),
                ("title", models.TextField(blank=True)),
                ("text", models.TextField(blank=True)),
                ("vector", django.contrib.postgres.search.SearchVectorField(editable=False, null=True)),
                ("indexed_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["path"],
                "indexes": [
                    django.contrib.postgres.indexes.GinIndex(fields=["vector"], name="search_vector"),
                    models.Index(fields=["state"], name="search_state"),
                ],
            },
        ),
    ]
