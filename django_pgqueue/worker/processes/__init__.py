"""Links between a process and its children: what they share, how they end, and how they die together."""
