"""Jobs: the list, its filters and search, and the fields of a job there and on its page."""
