"""A call waits only so long for its unique key, and a claim by SQL takes only so many bytes."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0028_many_queues")]

    operations = [
        RunSQLFile(
            "unique_patience_v1.sql",
            "SELECT pgqueue_unique_patience_v1(false); DROP FUNCTION pgqueue_unique_patience_v1",
        ),
        RunSQLFile(
            "fitting_v1.sql",
            "SELECT pgqueue_claim_fitting_v1(false); DROP FUNCTION pgqueue_claim_fitting_v1;"
            " DROP FUNCTION pgqueue_fitting_v1",
        ),
    ]
