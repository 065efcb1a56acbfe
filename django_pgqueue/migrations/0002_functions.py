"""The functions and the triggers: all changes of jobs, the wake-up, the maintenance, and what people ask for.

A function whose language is SQL comes after those that it calls. The triggers refuse changes that are no
transition, wake a worker at the commit, check the size of jobs, and follow edges and changes of the timing of
schedules.
"""

from django.db import migrations

from ..operations import RunSQLFile

FUNCTIONS = """
    # Names and words
    lock_key_v1 channel_v1 status_is_terminal status_is_claimable on_duty_v1
    # Enqueue
    problem_v1 enqueue_only_v1 enqueue_v1 enqueue_many_v1 enqueue
    # What a call runs after, and its batch
    link_problem_v1 is_final_v1 count_v1 enter_batch_v1 mark_v1 attach_once_v1 attach_v1 wait_reason_v1
    cycle_v1 link_v1 linked_v1 meet_v1
    # Claim
    first_due_between_v1 queues_between_v1 first_due_v1 groups_after_v1 fill_policy_v1 first_of_priorities_v1
    first_of_queues_v1 fitting_v1
    # Finish
    shelf_v1 add_error_v1 add_log_v1 fingerprint_v1 finish_v1 finish_one_v1 finish forget_progress_v1
    note_failures_v2 last_progress_v1
    # What people ask for
    drop_v1 cancel retry run_now edit extend
    # Recover
    give_back_v1 crashed_v1 forget_workers_v1 recover_v1 recover_worker_v1 allowed_silence_v1 dead_workers_v1
    end_sessions_v1 recover_dead_v1 recover_strays_v1
    # History and statistics
    rotate_v1 sweep_v1 retain_v1 add_histograms_v1 stat_v1 note_gone_v1 rotate_v2
    # What triggers call
    guard_v1 wake_once_v1 wake_v1
    # Schedules
    enqueue_runs_v1 fire_v1 enqueue_schedule_v1 schedule_changed_v1
    # Unique keys
    context_problem_v1 options_problem_v1 twin_v1 insert_unique_v1 finish_keyed_v1 give_back_each_v1
    # Limits
    limit_problem_v1 key_problem_v1 release_v1 replace_v1 gate_v1 room_v1 repair_lines_v1 release_limit_v1
    declare_limits_v1 set_limit_v1 limit_name_v1 set_limit reset_limit_v1 reset_limit
    # Pauses
    pause resume unpause_v1 drain_worker
    # Workers in any language
    random_v1 register_worker heartbeat unregister_worker
    pick_groups_v1 pick_v1 put_aside_v1 claim_v1 claim
    # Rates
    starts_left_v1 next_start_v1 settle_rates_v1 charge_v1 charge_queues_v1 take_rate
    blocked_by
    # Steps
    record_step_v1 wait_v1 send_event has_event_v1 wake_steps_v1 unfold_steps_v1 fold_steps_v1
    settle_v1
    # The end of jobs and batches
    lock_children_v1 lock_batches_v1 end_batches_v1 cut_v1 unblock_v1 hold_back_v1 reopen_v1
    # Batches
    open_batch close_batch cancel_batch retry_batch batch_counts
    # Why a job waits
    parents parent_state_v1
    # Maintenance
    repair_batches_v1 repair_edges_v1 sweep_batches_v1 check_references_v1 sweep_payloads_v1
    # Payloads
    declare_tasks_v1 policy_v1
    # The triggers of payloads
    insert_keyed_payloads_v1 payload_insert_v1 payload_update_v1 payload_delete_v1 payload_paths_v1
    drop_payload_triggers_v1 attach_payload_v1 detach_payload_v1 check_key_columns_v1
    # Progress
    write_progress_v1 progress
    # Statistics
    roll_up_v1 forget_statistics_v1 estimate_v1 depth_v1
    # Why a job does not run
    why_error_v1 why_is_unknown_v1 why_over_v1 why_running_v1 why_after_v1 why_later_v1 why_paused_v1
    why_longest_v1 why_holders_v1 why_place_v1 why_limited_v1 why_held_v1 why_workers_v1 why_higher_v1
    why_earlier_v1 why_ahead_v1 why_turn_v1 why
    # Groups of failures
    note_failures_v1 fold_failures_v1 forget_failures_v1 tell_failures_v1
    # What a role that may only enqueue reads
    result
    # Sizes
    retain_bound_v1 check_size_v1
"""


def install(names: str) -> list[RunSQLFile]:
    """Return the operations for functions, one name after the other. The lines of ``#`` are topics."""
    words = " ".join(line for line in names.splitlines() if "#" not in line).split()
    return [RunSQLFile(f"{name}.sql", f"DROP ROUTINE pgqueue_{name}") for name in words]


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0001_initial")]

    operations = [
        *install(FUNCTIONS),
        RunSQLFile("guard_trigger_v1.sql", "DROP TRIGGER pgqueue_guard ON pgqueue_job"),
        RunSQLFile("wake_insert_trigger_v1.sql", "DROP TRIGGER pgqueue_wake_insert ON pgqueue_job_live"),
        RunSQLFile("wake_update_trigger_v1.sql", "DROP TRIGGER pgqueue_wake_update ON pgqueue_job_live"),
        RunSQLFile("schedule_trigger_v1.sql", "DROP TRIGGER pgqueue_schedule_changed ON pgqueue_schedule"),
        RunSQLFile("attach_trigger_v1.sql", "DROP TRIGGER pgqueue_attach ON pgqueue_edge"),
        RunSQLFile("check_size_trigger_v1.sql", "DROP TRIGGER pgqueue_check_size ON pgqueue_job_live"),
    ]
