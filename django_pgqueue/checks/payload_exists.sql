SELECT to_regclass(%s) IS NOT NULL AND to_regprocedure('_pgqueue_payload_paths(regclass)') IS NOT NULL
