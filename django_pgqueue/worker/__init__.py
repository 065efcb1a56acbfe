"""The worker: a supervisor, its processes, and in each a pump, job threads and an event loop."""
