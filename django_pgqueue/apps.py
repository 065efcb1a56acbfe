"""The app config: the label of the app, its name in the admin, its checks, and what ``migrate`` entails."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate, pre_migrate, pre_save


class PgQueueConfig(AppConfig):
    """``INSTALLED_APPS = [..., "django_pgqueue"]``."""

    name = "django_pgqueue"
    verbose_name = "Job queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and what a ``migrate``, a load and a connection entail; remember the
        databases before anything changes them.
        """
        from .checks import backends, database, payloads, tasks  # noqa: F401
        from .maintenance.payloads import after_migrate
        from .models.job import keep_sequence_ahead, names_ids
        from .postgres import aliases, roles

        aliases.remember()
        connection_created.connect(aliases.set_interval_style)
        pre_migrate.connect(roles.before_migrate, sender=self)
        post_migrate.connect(roles.after_migrate, sender=self)
        for model in filter(names_ids, self.get_models()):
            pre_save.connect(keep_sequence_ahead, sender=model)
        post_migrate.connect(after_migrate, sender=self)
        backends.silence_django()
