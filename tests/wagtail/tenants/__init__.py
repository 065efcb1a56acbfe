"""A project of django-tenants: each tenant has a schema, and the jobs of all are in the schema ``public``."""
