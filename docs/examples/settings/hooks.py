PGQUEUE = {
    "AROUND_ATTEMPT": ["shop.hooks.tenant_of_job"],
}
