"""The supervisor: it starts worker processes, watches them and sends their heartbeats. It runs no task."""
