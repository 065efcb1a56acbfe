"""The table that jobs of the benchmarks write to."""

from __future__ import annotations

from django.db import models


class Note(models.Model):
    """A small row, as most jobs write."""

    text = models.TextField()

    class Meta:
        """Made by the benchmark itself: it needs no migration."""

        managed = False
        db_table = "benchmark_note"
