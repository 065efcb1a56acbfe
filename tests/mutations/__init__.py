"""A test must miss each guard that is taken out of the package (``python3 dev.py mutate``)."""
