"""Thirty days of a queue that nobody touches: ``python -m benchmarks.thirty_days``."""
