import django_pgschemas.schema
import django_pgschemas.utils
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            "Customer",
            [
                ("id", models.BigAutoField("ID", auto_created=True, primary_key=True, serialize=False)),
                (
                    "schema_name",
                    models.CharField(
                        max_length=63,
                        unique=True,
                        validators=[django_pgschemas.utils.check_schema_name_not_reserved],
                    ),
                ),
            ],
            options={"abstract": False},
            bases=(django_pgschemas.schema.Schema, models.Model),
        ),
    ]
