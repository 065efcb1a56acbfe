"""Links between a process and those that it starts: what they share, how they end, how they die together."""
