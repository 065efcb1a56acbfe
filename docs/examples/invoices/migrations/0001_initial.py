import django.db.models.deletion
from django.db import migrations, models

from django_pgqueue.operations import PayloadTriggers


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
                ("email", models.EmailField(max_length=254)),
                ("total", models.IntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Invoice",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        db_constraint=False,
                        db_default=models.Func(
                            models.Value("pgqueue_job_id_seq"),
                            function="nextval",
                            output_field=models.BigIntegerField(),
                        ),
                        editable=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="%(app_label)s_%(class)s",
                        serialize=False,
                        to="django_pgqueue.job",
                        verbose_name="job",
                    ),
                ),
                ("language", models.CharField(default="en", max_length=8)),
                (
                    "order",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="invoices.order"),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("order", "language"), name="one_invoice_per_language")
                ],
            },
        ),
        PayloadTriggers("Invoice", "invoices.tasks.send_invoice"),
    ]
