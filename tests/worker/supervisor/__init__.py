"""What a supervisor does with its processes, its service manager and its orphans."""

from __future__ import annotations
