"""Tests of how a supervisor handles its processes, its service manager and orphans."""

from __future__ import annotations
