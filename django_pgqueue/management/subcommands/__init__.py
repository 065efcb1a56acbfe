"""The subcommands of ``manage.py pgqueue``, which ``_parser`` finds."""
