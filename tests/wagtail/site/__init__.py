"""A Wagtail site: Wagtail's own tasks on this backend."""
