"""The table that jobs of the benchmarks write to."""

from __future__ import annotations

from django.db import models


class Note(models.Model):
    """A small row, as most jobs write."""

    text = models.TextField()

    class Meta:
        """Made by the benchmark itself: it needs no migration."""

        managed = False
        db_table = "note"


class Row(models.Model):
    """The columns of a job that ``enqueue()`` fills, in an ordinary table."""

    shelf = models.SmallIntegerField()
    status = models.TextField()
    task_path = models.TextField()
    args = models.JSONField()
    kwargs = models.JSONField()
    metadata = models.JSONField()
    queue_name = models.TextField()
    priority = models.SmallIntegerField()
    run_after = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    enqueued_at = models.DateTimeField()
    max_attempts = models.IntegerField(null=True)
    timeout = models.IntegerField(null=True)
    on_lost = models.TextField()

    class Meta:
        """Made by the benchmark itself."""

        managed = False
        db_table = "benchmark_row"
