"""A call whose unique key is taken keeps its batch, and what it runs after."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0033_why_lost_jobs")]

    operations = [
        RunSQLFile(
            "meet_v1.sql",
            "SELECT pgqueue_meet_twins_v1(false); DROP FUNCTION pgqueue_meet_twins_v1;"
            " DROP FUNCTION pgqueue_meet_v1",
        ),
    ]
