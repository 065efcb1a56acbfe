"""The functions: every change of a job's state, the wake-up and the maintenance.

Those that triggers call are here as well: a function is replaced by a file of its own, whoever calls it.
"""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0001_initial")]

    operations = [
        # Names and words
        RunSQLFile("lock_key_v1.sql", "DROP FUNCTION pgqueue_lock_key_v1"),
        RunSQLFile("channel_v1.sql", "DROP FUNCTION pgqueue_channel_v1"),
        RunSQLFile("status_is_terminal.sql", "DROP FUNCTION pgqueue_status_is_terminal"),
        RunSQLFile("status_is_claimable.sql", "DROP FUNCTION pgqueue_status_is_claimable"),
        # Enqueue
        RunSQLFile("problem_v1.sql", "DROP FUNCTION pgqueue_problem_v1"),
        RunSQLFile("enqueue_only_v1.sql", "DROP FUNCTION pgqueue_enqueue_only_v1"),
        RunSQLFile("enqueue_v1.sql", "DROP FUNCTION pgqueue_enqueue_v1"),
        RunSQLFile("enqueue_many_v1.sql", "DROP FUNCTION pgqueue_enqueue_many_v1"),
        RunSQLFile("enqueue.sql", "DROP FUNCTION pgqueue_enqueue"),
        # Claim
        RunSQLFile("first_due_between_v1.sql", "DROP FUNCTION pgqueue_first_due_between_v1"),
        RunSQLFile("queues_between_v1.sql", "DROP FUNCTION pgqueue_queues_between_v1"),
        RunSQLFile("first_due_v1.sql", "DROP FUNCTION pgqueue_first_due_v1"),
        RunSQLFile("groups_after_v1.sql", "DROP FUNCTION pgqueue_groups_after_v1"),
        RunSQLFile("fill_policy_v1.sql", "DROP FUNCTION pgqueue_fill_policy_v1"),
        # Finish
        RunSQLFile("shelf_v1.sql", "DROP FUNCTION pgqueue_shelf_v1"),
        RunSQLFile("add_error_v1.sql", "DROP FUNCTION pgqueue_add_error_v1"),
        RunSQLFile("add_log_v1.sql", "DROP FUNCTION pgqueue_add_log_v1"),
        RunSQLFile("ended_v1.sql", "DROP TYPE pgqueue_ended_v1"),
        RunSQLFile("failed_v1.sql", "DROP TYPE pgqueue_failed_v1"),
        RunSQLFile("fingerprint_v1.sql", "DROP FUNCTION pgqueue_fingerprint_v1"),
        RunSQLFile("finish_v1.sql", "DROP FUNCTION pgqueue_finish_v1"),
        RunSQLFile("finish_one_v1.sql", "DROP PROCEDURE pgqueue_finish_one_v1"),
        RunSQLFile("finish.sql", "DROP PROCEDURE pgqueue_finish"),
        # What people ask for
        RunSQLFile("drop_v1.sql", "DROP FUNCTION pgqueue_drop_v1"),
        RunSQLFile("cancel_v1.sql", "DROP FUNCTION pgqueue_cancel_v1"),
        RunSQLFile("cancel.sql", "DROP FUNCTION pgqueue_cancel"),
        RunSQLFile("retry_v1.sql", "DROP FUNCTION pgqueue_retry_v1"),
        RunSQLFile("retry.sql", "DROP FUNCTION pgqueue_retry"),
        RunSQLFile("run_now_v1.sql", "DROP FUNCTION pgqueue_run_now_v1"),
        RunSQLFile("run_now.sql", "DROP FUNCTION pgqueue_run_now"),
        RunSQLFile("edit_v1.sql", "DROP FUNCTION pgqueue_edit_v1"),
        RunSQLFile("edit.sql", "DROP FUNCTION pgqueue_edit"),
        RunSQLFile("extend_v1.sql", "DROP FUNCTION pgqueue_extend_v1"),
        RunSQLFile("extend.sql", "DROP FUNCTION pgqueue_extend"),
        # Recover
        RunSQLFile("give_back_v1.sql", "DROP FUNCTION pgqueue_give_back_v1"),
        RunSQLFile("crashed_v1.sql", "DROP FUNCTION pgqueue_crashed_v1"),
        RunSQLFile("forget_workers_v1.sql", "DROP FUNCTION pgqueue_forget_workers_v1"),
        RunSQLFile("recover_v1.sql", "DROP FUNCTION pgqueue_recover_v1"),
        RunSQLFile("recover_worker_v1.sql", "DROP FUNCTION pgqueue_recover_worker_v1"),
        RunSQLFile("allowed_silence_v1.sql", "DROP FUNCTION pgqueue_allowed_silence_v1"),
        RunSQLFile("dead_workers_v1.sql", "DROP FUNCTION pgqueue_dead_workers_v1"),
        RunSQLFile("end_sessions_v1.sql", "DROP FUNCTION pgqueue_end_sessions_v1"),
        RunSQLFile("recover_dead_v1.sql", "DROP FUNCTION pgqueue_recover_dead_v1"),
        RunSQLFile("recover_strays_v1.sql", "DROP FUNCTION pgqueue_recover_strays_v1"),
        # History and statistics
        RunSQLFile("rotate_v1.sql", "DROP FUNCTION pgqueue_rotate_v1"),
        RunSQLFile("sweep_v1.sql", "DROP FUNCTION pgqueue_sweep_v1"),
        RunSQLFile("retain_v1.sql", "DROP FUNCTION pgqueue_retain_v1"),
        RunSQLFile("add_histograms_v1.sql", "DROP FUNCTION pgqueue_add_histograms_v1"),
        RunSQLFile("stat_v1.sql", "DROP FUNCTION pgqueue_stat_v1"),
        # What triggers call
        RunSQLFile("guard_v1.sql", "DROP FUNCTION pgqueue_guard_v1"),
        RunSQLFile("wake_once_v1.sql", "DROP FUNCTION pgqueue_wake_once_v1"),
        RunSQLFile("wake_v1.sql", "DROP FUNCTION pgqueue_wake_v1"),
    ]
