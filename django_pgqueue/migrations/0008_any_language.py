"""The functions for workers in other languages: register, heartbeat, claim, sign off."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0007_pause")]

    operations = [
        RunSQLFile("random_v1.sql", "DROP FUNCTION pgqueue_random_v1"),
        RunSQLFile("register_worker_v1.sql", "DROP FUNCTION pgqueue_register_worker_v1"),
        RunSQLFile("register_worker.sql", "DROP FUNCTION pgqueue_register_worker"),
        RunSQLFile("heartbeat_v1.sql", "DROP FUNCTION pgqueue_heartbeat_v1"),
        RunSQLFile("heartbeat.sql", "DROP FUNCTION pgqueue_heartbeat"),
        RunSQLFile("unregister_worker_v1.sql", "DROP FUNCTION pgqueue_unregister_worker_v1"),
        RunSQLFile("unregister_worker.sql", "DROP FUNCTION pgqueue_unregister_worker"),
        RunSQLFile("pick_groups_v1.sql", "DROP FUNCTION pgqueue_pick_groups_v1"),
        RunSQLFile("pick_v1.sql", "DROP FUNCTION pgqueue_pick_v1"),
        RunSQLFile("put_aside_v1.sql", "DROP FUNCTION pgqueue_put_aside_v1"),
        RunSQLFile("claim_v1.sql", "DROP FUNCTION pgqueue_claim_v1"),
        RunSQLFile("claim.sql", "DROP FUNCTION pgqueue_claim"),
    ]
