"""The supervisor: starts the worker processes, watches them, beats for them. It runs no task itself."""
