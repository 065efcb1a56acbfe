from django.db import migrations, models
from django_tenants.postgresql_backend.base import _check_schema_name


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel("Customer", [
            ("id", models.BigAutoField("ID", auto_created=True, primary_key=True, serialize=False)),
            ("schema_name", models.CharField(
                db_index=True, max_length=63, unique=True, validators=[_check_schema_name]
            )),
            ("name", models.CharField(max_length=100)),
        ]),
        migrations.CreateModel("Domain", [
            ("id", models.BigAutoField("ID", auto_created=True, primary_key=True, serialize=False)),
            ("domain", models.CharField(db_index=True, max_length=253, unique=True)),
            ("is_primary", models.BooleanField(db_index=True, default=True)),
            ("tenant", models.ForeignKey("customers.customer", models.CASCADE, related_name="domains")),
        ]),
    ]  # fmt: skip
