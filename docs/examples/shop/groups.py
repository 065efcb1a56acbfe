from django.contrib.auth.models import Group, Permission

VIEWER = [
    "view_job", "view_jobbatch", "view_queue", "view_pause", "view_limit", "view_schedule",
    "view_schedulerun", "view_worker", "view_jobstat",
]  # fmt: skip
OPERATOR = [
    *VIEWER,
    "retry_job", "run_now_job", "cancel_job", "extend_job", "edit_job",
    "add_pause", "change_pause", "delete_pause", "pause_schedule", "enqueue_schedule", "drain_worker",
    "mute_failuregroup",
]  # fmt: skip
ADMIN = [
    *OPERATOR,
    "view_arguments_job", "clone_job", "rerun_done_job",
    "add_queue", "change_queue", "delete_queue", "add_limit", "change_limit", "delete_limit",
    "add_schedule", "change_schedule", "delete_schedule",
]  # fmt: skip


def make_groups() -> None:
    """Call it after migrate, for instance in a management command."""
    known = Permission.objects.filter(content_type__app_label="django_pgqueue")
    for name, codenames in {"viewer": VIEWER, "operator": OPERATOR, "admin": ADMIN}.items():
        group, _ = Group.objects.get_or_create(name=f"Job queue {name}")
        group.permissions.set(known.filter(codename__in=codenames))
