"""A project of django-configurations: its settings are classes."""
