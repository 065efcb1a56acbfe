"""The producer: claims jobs, hands them to the executor, reports how they went, sleeps meanwhile."""
