"""A project of django-pgschemas with the tables of the queue in the schema `public`."""
