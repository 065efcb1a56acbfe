"""Payload models: of a sync, an async and an atomic task, with keys in columns, and with kept rows."""

from __future__ import annotations

from django.db import models

from django_pgqueue import JobPayload


class Order(models.Model):
    """What the payloads refer to."""

    id = models.BigAutoField(primary_key=True)
    total = models.IntegerField(default=0)

    def __str__(self) -> str:
        return str(self.total)


class Mail(JobPayload):
    """The fields that several payloads have."""

    order = models.ForeignKey(Order, models.CASCADE)
    email = models.EmailField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.email


class Receipt(Mail):
    """The payload of a sync task. Its own save() normalizes the address."""

    class Meta:
        constraints = [models.CheckConstraint(condition=~models.Q(email="refused"), name="receipt_email")]

    def save(self, *args: object, **kwargs: object) -> None:
        """Save the address in lower case."""
        self.email = self.email.lower()
        super().save(*args, **kwargs)  # type: ignore[arg-type]


class Reminder(Mail):
    """The payload of an async task."""


class Charge(Mail):
    """The payload of an atomic task, whose rows are kept."""

    keep_rows = True
    paid = models.BooleanField(default=False)


class SignedCharge(Charge):
    """A charge with a second table."""

    signature = models.CharField(max_length=20)


class Visit(JobPayload):
    """The payload of a task with a limit key and a group."""

    order = models.ForeignKey(Order, models.CASCADE, null=True)
    customer = models.CharField(max_length=300, null=True, db_column="customer_name")

    def __str__(self) -> str:
        return str(self.customer)
