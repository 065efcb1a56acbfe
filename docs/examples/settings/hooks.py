PGQUEUE = {
    "BEFORE_ENQUEUE": ["shop.hooks.note_tenant"],
    "AROUND_ATTEMPT": ["shop.hooks.tenant_of_job"],
}
