"""Why a job does not run."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0014_stats")]

    operations = [
        RunSQLFile("why_error_v1.sql", "DROP FUNCTION pgqueue_why_error_v1"),
        RunSQLFile("why_is_unknown_v1.sql", "DROP FUNCTION pgqueue_why_is_unknown_v1"),
        RunSQLFile("why_over_v1.sql", "DROP FUNCTION pgqueue_why_over_v1"),
        RunSQLFile("why_running_v1.sql", "DROP FUNCTION pgqueue_why_running_v1"),
        RunSQLFile("why_after_v1.sql", "DROP FUNCTION pgqueue_why_after_v1"),
        RunSQLFile("why_later_v1.sql", "DROP FUNCTION pgqueue_why_later_v1"),
        RunSQLFile("why_paused_v1.sql", "DROP FUNCTION pgqueue_why_paused_v1"),
        RunSQLFile("why_longest_v1.sql", "DROP FUNCTION pgqueue_why_longest_v1"),
        RunSQLFile("why_holders_v1.sql", "DROP FUNCTION pgqueue_why_holders_v1"),
        RunSQLFile("why_place_v1.sql", "DROP FUNCTION pgqueue_why_place_v1"),
        RunSQLFile("why_limited_v1.sql", "DROP FUNCTION pgqueue_why_limited_v1"),
        RunSQLFile("why_held_v1.sql", "DROP FUNCTION pgqueue_why_held_v1"),
        RunSQLFile("why_workers_v1.sql", "DROP FUNCTION pgqueue_why_workers_v1"),
        RunSQLFile("why_higher_v1.sql", "DROP FUNCTION pgqueue_why_higher_v1"),
        RunSQLFile("why_earlier_v1.sql", "DROP FUNCTION pgqueue_why_earlier_v1"),
        RunSQLFile("why_ahead_v1.sql", "DROP FUNCTION pgqueue_why_ahead_v1"),
        RunSQLFile("why_turn_v1.sql", "DROP FUNCTION pgqueue_why_turn_v1"),
        RunSQLFile("why_v1.sql", "DROP FUNCTION pgqueue_why_v1"),
        RunSQLFile("why.sql", "DROP FUNCTION pgqueue_why"),
    ]
