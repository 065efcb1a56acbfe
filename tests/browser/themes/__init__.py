"""The console with the themes for Django's admin that projects use most: a settings module for each."""
