SELECT _pgqueue_write_progress(%s::bigint[], %s::bigint[], %s::text[], %s::double precision[],
    %s::double precision[], %s::text[])
