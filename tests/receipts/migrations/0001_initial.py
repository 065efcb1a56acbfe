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


def mail(*more: tuple[str, Any]) -> list[tuple[str, Any]]:
    """Return the fields of a mail."""
    return [("job", job()), ("email", models.EmailField(max_length=254)), ("order", order()), *more]


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("django_pgqueue", "0002_functions"),
    ]

    operations = [
        migrations.CreateModel(
            "Order",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("total", models.IntegerField(default=0)),
            ],
        ),
        migrations.CreateModel("Charge", mail(("paid", models.BooleanField(default=False)))),
        migrations.CreateModel(
            "SignedCharge",
            [
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
            bases=("receipts.charge",),
        ),
        migrations.CreateModel("Reminder", mail()),
        migrations.CreateModel(
            "Visit",
            [
                ("job", job()),
                ("customer", models.CharField(db_column="customer_name", max_length=300, null=True)),
                ("order", order(null=True)),
            ],
        ),
        migrations.CreateModel(
            "Receipt",
            mail(),
            {
                "constraints": [
                    models.CheckConstraint(condition=~models.Q(email="refused"), name="receipt_email")
                ]
            },
        ),
        PayloadTriggers("Receipt", "tests.receipts.tasks.send"),
        PayloadTriggers("Reminder", "tests.receipts.tasks.remind"),
        PayloadTriggers("Charge", "tests.receipts.tasks.charge"),
        PayloadTriggers("Visit", "tests.receipts.tasks.visit"),
    ]
