"""The documentation: every example runs, every name is there."""
