SELECT _pgqueue_fill_policy(%s::bigint[], %s::bigint[], %s::integer[], %s::integer[], %s::text[],
    %s::double precision[])
