SELECT _pgqueue_stat(%s::timestamptz[], %s::text[], %s::text[], %s::bigint[], %s::bigint[],
    %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::double precision[], %s::double precision[])
