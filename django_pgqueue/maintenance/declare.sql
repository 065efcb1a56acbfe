SELECT _pgqueue_declare_limits(
    %s::text[], %s::integer[], %s::text[], %s::integer[], %s::interval[], %s::integer[], %s::text[]
)
