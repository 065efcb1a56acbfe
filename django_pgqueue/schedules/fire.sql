SELECT _pgqueue_fire(%s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[], %s::text[], %s::timestamptz[],
    %s::boolean[], %s::jsonb[])
