SELECT * FROM _pgqueue_finish(%s::bigint[], %s::bigint[], %s::text[], %s::jsonb[], %s::jsonb[],
    %s::text[], %s::double precision[], %s::double precision[], %s::double precision[], %s::text[],
    %s::integer, %s::jsonb[])
