"""The page of a job: its sections, its timeline, why it does not run, and a copy of it."""
