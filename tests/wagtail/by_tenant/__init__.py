"""The project of tests/wagtail/tenants, in which two hooks make the schema the tenant of each job."""
