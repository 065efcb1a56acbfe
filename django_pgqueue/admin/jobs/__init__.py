"""Jobs: the list, its filters and search, forms, and the fields of a job there and on its page."""
