#!/usr/bin/env python
"""Django's command line for the example project."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # modules are imported as example_project.…
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.project.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
