"""The tags and filters of the templates."""
