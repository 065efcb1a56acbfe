from django.db import models

from django_pgqueue.models import Job


class Order(models.Model):
    email = models.EmailField()
    total = models.IntegerField(default=0)
    paid = models.BooleanField(default=False)


class Receipt(models.Model):
    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    text = models.TextField()


class Account(models.Model):
    name = models.CharField(max_length=100)
    balance = models.IntegerField(default=0)


class DailyReport(models.Model):
    day = models.DateField(unique=True)
    text = models.TextField(blank=True)


class Price(models.Model):
    supplier = models.CharField(max_length=100)
    article = models.CharField(max_length=100, unique=True)
    cents = models.IntegerField()
    public = models.BooleanField(default=False)


class Export(models.Model):
    job = models.ForeignKey(
        Job,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        related_name="exports",
    )
    name = models.CharField(max_length=100)
    outcome = models.CharField(max_length=20, blank=True)
