SELECT ids, outcomes FROM _pgqueue_enqueue_many(
    %s::integer, %s::text[], %s::jsonb[], %s::jsonb[], %s::jsonb[], %s::text[], %s::integer[],
    %s::timestamptz[], %s::double precision[], %s::double precision[], %s::integer[], %s::integer[],
    %s::text[], NULL, %s::jsonb[], %s::jsonb, %s::bigint, %s::text)
