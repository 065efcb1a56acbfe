"""The page of a job: its sections, and its timeline."""
