"""The executor: threads and an event loop that run the jobs, and what is around one job while it runs."""
