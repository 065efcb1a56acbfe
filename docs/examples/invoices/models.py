from django.db import models

from django_pgqueue import JobPayload


class Order(models.Model):
    email = models.EmailField()
    total = models.IntegerField(default=0)


class Invoice(JobPayload):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    language = models.CharField(max_length=8, default="en")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["order", "language"], name="one_invoice_per_language")]
