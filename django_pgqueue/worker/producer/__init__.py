"""The producer: claims jobs, passes them to the executor, reports their outcomes, and sleeps in between."""
