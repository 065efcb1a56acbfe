"""The commands, and what they print. ``subcommands`` has a module for each of ``manage.py pgqueue``."""
