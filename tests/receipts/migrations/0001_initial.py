"""The tables of the payloads, as makemigrations writes them, and their triggers."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from django_pgqueue.operations import PayloadTriggers


def job() -> Any:
    """Return the key of a payload, which makemigrations writes out for each of them."""
    return models.OneToOneField(
        db_constraint=False,
        db_default=models.Func(
            models.Value("pgqueue_job_id_seq"), function="nextval", output_field=models.BigIntegerField()
        ),
        editable=False,
        on_delete=django.db.models.deletion.DO_NOTHING,
        primary_key=True,
        related_name="%(app_label)s_%(class)s",
        serialize=False,
        to="django_pgqueue.job",
        verbose_name="job",
    )


def order(**options: Any) -> Any:
    """Return the reference to an order."""
    return models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="receipts.order", **options)


def email() -> Any:
    """Return the address of a mail."""
    return models.EmailField(max_length=254)


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("django_pgqueue", "0002_functions"),
    ]

    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("total", models.IntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Charge",
            fields=[
                ("job", job()),
                ("email", email()),
                ("paid", models.BooleanField(default=False)),
                ("order", order()),
            ],
            options={"abstract": False},
        ),
        migrations.CreateModel(
            name="SignedCharge",
            fields=[
                (
                    "charge_ptr",
                    models.OneToOneField(
                        auto_created=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        parent_link=True,
                        primary_key=True,
                        serialize=False,
                        to="receipts.charge",
                    ),
                ),
                ("signature", models.CharField(max_length=20)),
            ],
            options={"abstract": False},
            bases=("receipts.charge",),
        ),
        migrations.CreateModel(
            name="Reminder",
            fields=[("job", job()), ("email", email()), ("order", order())],
            options={"abstract": False},
        ),
        migrations.CreateModel(
            name="Visit",
            fields=[
                ("job", job()),
                ("customer", models.CharField(db_column="customer_name", max_length=300, null=True)),
                ("order", order(null=True)),
            ],
            options={"abstract": False},
        ),
        migrations.CreateModel(
            name="Receipt",
            fields=[("job", job()), ("email", email()), ("order", order())],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("email", "refused"), _negated=True), name="receipt_email"
                    )
                ],
            },
        ),
        PayloadTriggers("Receipt", "tests.receipts.tasks.send"),
        PayloadTriggers("Reminder", "tests.receipts.tasks.remind"),
        PayloadTriggers("Charge", "tests.receipts.tasks.charge"),
        PayloadTriggers("Visit", "tests.receipts.tasks.visit"),
    ]
