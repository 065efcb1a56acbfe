"""``pgqueue_why`` counts the slots that lost jobs take. The column has a migration of its own."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0032_lost_jobs")]

    operations = [
        RunSQLFile(
            "why_lost_jobs_v1.sql",
            "SELECT pgqueue_why_lost_jobs_v1(false); DROP FUNCTION pgqueue_why_lost_jobs_v1",
        ),
    ]
