CALL _pgqueue_finish_one(%s::bigint, %s::bigint, %s, %s::jsonb, %s::jsonb, %s,
    %s::double precision, %s::double precision, %s::double precision, %s, %s::integer,
    %s::jsonb)
