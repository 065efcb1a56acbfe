"""The subcommands of ``manage.py pgqueue``, one module each; ``_subcommands`` describes what a module has."""
