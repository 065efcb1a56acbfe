from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel("Order", [
            ("id", models.BigAutoField("ID", auto_created=True, primary_key=True, serialize=False)),
            ("email", models.EmailField(max_length=254)),
        ]),
    ]  # fmt: skip
