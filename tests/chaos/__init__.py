"""What production does to a queue: kills, crashes, stops, outages, and tasks that harm their process."""
