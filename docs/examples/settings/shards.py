PGQUEUE = {
    "SHARDS": ["default", "other"],  # aliases of DATABASES
}
