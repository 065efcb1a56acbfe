"""The worker: a supervisor, its processes, and in each a producer, job threads and an event loop."""
