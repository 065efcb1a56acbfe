"""Workers tell how many of their slots are taken by jobs that they have lost."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0031_deleted_by_hand")]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="lost",
            field=models.IntegerField(db_default=0, default=0, verbose_name="slots taken by lost jobs"),
        ),
    ]
