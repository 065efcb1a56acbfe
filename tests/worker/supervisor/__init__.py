"""Tests of how a supervisor handles its processes, its service manager and orphans."""
