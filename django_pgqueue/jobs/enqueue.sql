SELECT id, run_after, expires_at, enqueued_at, outcome FROM _pgqueue_enqueue(
    %s, %s::jsonb, %s::jsonb, %s::jsonb, %s, %s::integer, %s::timestamptz, %s::double precision, NULL,
    %s::double precision, %s::integer, %s::integer, %s, NULL, %s::jsonb, %s)
