"""Tests of what the admin, the commands and the metrics show."""
