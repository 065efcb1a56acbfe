"""The Django project in which django-tasks-db runs."""
