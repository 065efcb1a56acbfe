"""All actions of the admin, and the test that presses each of them in the browser.

``test_every_action.py`` compares the table with what the pages offer. At the end of each test, the fixture
``pressed`` compares what it has sent with what the table says.
"""

from __future__ import annotations

__all__ = ["CLICKS", "pressed_by"]

#: The names are those of ``pressed.py``.
CLICKS = {
    "job_cancel": "test_cancel_a_waiting_job",
    "job_clone": "test_enqueue_again_after_a_mistake",
    "job_edit": "test_edit_a_waiting_job_after_a_mistake",
    "job_extend": "test_give_a_running_job_one_more_hour",
    "job_retry": "test_retry_a_failed_job",
    "job_run_now": "test_run_a_job_now_that_waits_for_its_time",
    "job_changelist cancel_jobs": "test_all_that_match_run_in_the_background_are_stopped_and_go_on",
    "job_changelist edit_jobs": "test_an_action_on_selected_jobs[edit_jobs-plain]",
    "job_changelist extend_jobs": "test_an_action_on_selected_jobs[extend_jobs-plain]",
    "job_changelist retry_jobs": "test_an_action_on_selected_jobs[retry_jobs-plain]",
    "job_changelist run_now_jobs": "test_an_action_on_selected_jobs[run_now_jobs-plain]",
    "job_failure_mute mute": "test_mute_a_group_of_failures_and_unmute_it",
    "job_failure_mute unmute": "test_mute_a_group_of_failures_and_unmute_it",
    "job_overview pause": "test_pause_a_queue_on_the_overview_and_resume_it",
    "job_overview resume": "test_pause_a_queue_on_the_overview_and_resume_it",
    "jobbatch_cancel": "test_cancel_or_retry_a_batch[cancel-scheduled-cancelled]",
    "jobbatch_retry": "test_cancel_or_retry_a_batch[retry-failed-pending]",
    "jobbatch_changelist cancel_batches": "test_cancel_or_retry_selected_batches[cancel-scheduled-cancelled]",
    "jobbatch_changelist retry_batches": "test_cancel_or_retry_selected_batches[retry-failed-pending]",
    "limit_add": "test_a_limit",
    "limit_change": "test_a_limit",
    "limit_delete": "test_a_limit",
    "pause_add": "test_pause_a_queue_change_the_pause_and_resume",
    "pause_change": "test_pause_a_queue_change_the_pause_and_resume",
    "pause_resume": "test_pause_a_queue_change_the_pause_and_resume",
    "pause_changelist resume_selected": "test_resume_what_is_selected",
    "queue_add": "test_settings_of_a_queue",
    "queue_change": "test_settings_of_a_queue",
    "queue_delete": "test_settings_of_a_queue",
    "queue_changelist delete_selected": "test_delete_the_settings_of_selected_queues",
    "schedule_pause": "test_pause_a_schedule_resume_it_and_run_it",
    "schedule_resume": "test_pause_a_schedule_resume_it_and_run_it",
    "schedule_enqueue": "test_pause_a_schedule_resume_it_and_run_it",
    "schedule_restore": "test_back_to_what_is_declared",
    "schedule_add": "test_make_a_schedule_change_it_and_delete_it",
    "schedule_change": "test_make_a_schedule_change_it_and_delete_it",
    "schedule_delete": "test_make_a_schedule_change_it_and_delete_it",
    "schedule_changelist delete_selected": "test_delete_selected_schedules",
    "schedule_changelist pause_schedules": "test_actions_on_selected_schedules",
    "schedule_changelist resume_schedules": "test_actions_on_selected_schedules",
    "schedule_changelist enqueue_schedules": "test_actions_on_selected_schedules",
    "worker_replace": "test_drain_a_worker[^replace-replace-light]",
    "worker_stop": "test_drain_a_worker[^stop-stop-plain]",
    "worker_changelist replace_workers": "test_replace_selected_workers",
}


def pressed_by(test: str) -> set[str]:
    """Return the actions that a test presses. It is named with its parameters, which the table may omit."""
    return {action for action, name in CLICKS.items() if name in {test, test.partition("[")[0]}}
