"""The Django project in which Celery runs."""
