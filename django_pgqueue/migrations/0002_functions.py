"""The functions and triggers: every change of a job's state, the wake-up and the upkeep."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0001_initial")]

    operations = [
        RunSQLFile("key_v1.sql", "DROP FUNCTION pgqueue_key_v1"),
        RunSQLFile("channel_v1.sql", "DROP FUNCTION pgqueue_channel_v1"),
        RunSQLFile("problem_v1.sql", "DROP FUNCTION pgqueue_problem_v1"),
        RunSQLFile("enqueue_v1.sql", "DROP FUNCTION pgqueue_enqueue_v1"),
        RunSQLFile("enqueue_many_v1.sql", "DROP FUNCTION pgqueue_enqueue_many_v1"),
        RunSQLFile("enqueue.sql", "DROP FUNCTION pgqueue_enqueue"),
        RunSQLFile("shelf_v1.sql", "DROP FUNCTION pgqueue_shelf_v1"),
        RunSQLFile("add_error_v1.sql", "DROP FUNCTION pgqueue_add_error_v1"),
        RunSQLFile("finish_v1.sql", "DROP FUNCTION pgqueue_finish_v1"),
        RunSQLFile("finish_one_v1.sql", "DROP PROCEDURE pgqueue_finish_one_v1"),
        RunSQLFile("finish_one.sql", "DROP PROCEDURE pgqueue_finish_one"),
        RunSQLFile("cancel_v1.sql", "DROP FUNCTION pgqueue_cancel_v1"),
        RunSQLFile("retry_v1.sql", "DROP FUNCTION pgqueue_retry_v1"),
        RunSQLFile("run_now_v1.sql", "DROP FUNCTION pgqueue_run_now_v1"),
        RunSQLFile("cancel.sql", "DROP FUNCTION pgqueue_cancel"),
        RunSQLFile("retry.sql", "DROP FUNCTION pgqueue_retry"),
        RunSQLFile("heads_between_v1.sql", "DROP FUNCTION pgqueue_heads_between_v1"),
        RunSQLFile("queues_between_v1.sql", "DROP FUNCTION pgqueue_queues_between_v1"),
        RunSQLFile("heads_v1.sql", "DROP FUNCTION pgqueue_heads_v1"),
        RunSQLFile("fill_v1.sql", "DROP FUNCTION pgqueue_fill_v1"),
        RunSQLFile("recover_v1.sql", "DROP FUNCTION pgqueue_recover_v1"),
        RunSQLFile("dead_workers_v1.sql", "DROP FUNCTION pgqueue_dead_workers_v1"),
        RunSQLFile("rotate_v1.sql", "DROP FUNCTION pgqueue_rotate_v1"),
        RunSQLFile("sweep_v1.sql", "DROP FUNCTION pgqueue_sweep_v1"),
        RunSQLFile("retain_v1.sql", "DROP FUNCTION pgqueue_retain_v1"),
        RunSQLFile("add_histograms_v1.sql", "DROP FUNCTION pgqueue_add_histograms_v1"),
        RunSQLFile("stat_v1.sql", "DROP FUNCTION pgqueue_stat_v1"),
        RunSQLFile("guard_v1.sql", "DROP FUNCTION pgqueue_guard_v1"),
        RunSQLFile("guard_trigger_v1.sql", "DROP TRIGGER pgqueue_guard ON pgqueue_job"),
        RunSQLFile("arm_v1.sql", "DROP FUNCTION pgqueue_arm_v1"),
        RunSQLFile("wake_v1.sql", "DROP FUNCTION pgqueue_wake_v1"),
        RunSQLFile("wake_insert_trigger_v1.sql", "DROP TRIGGER pgqueue_wake_insert ON pgqueue_job_live"),
        RunSQLFile("wake_update_trigger_v1.sql", "DROP TRIGGER pgqueue_wake_update ON pgqueue_job_live"),
    ]
