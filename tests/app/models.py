"""The model of the rows that tasks write, so that a test can see what ran and what was rolled back."""

from __future__ import annotations

from django.db import models


class Entry(models.Model):
    """One effect of a task."""

    key = models.CharField(max_length=200)
    note = models.TextField(default="")

    def __str__(self) -> str:
        return f"{self.key}: {self.note}"


class Job(models.Model):
    """A user's own model with the same name as the queue's model."""

    title = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.title
