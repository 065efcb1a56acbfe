"""The same project with the tables of the queue in the schema of each tenant, where no worker runs."""
