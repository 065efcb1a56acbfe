"""Two database roles with few rights, and what they can do."""
