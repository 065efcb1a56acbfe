-- What is stored, and for each table of payloads its oid and the paths in its triggers.
SELECT coalesce((
    SELECT jsonb_agg(to_jsonb(kind) || jsonb_build_object('relation', kind.relation::oid::bigint))
    FROM pgqueue_task AS kind
), '[]')::text, (
    SELECT coalesce(jsonb_agg(jsonb_build_array(
        to_regclass(given.name)::oid::bigint, to_jsonb(_pgqueue_payload_paths(to_regclass(given.name)))
    ) ORDER BY given.place), '[]')
    FROM unnest(%s::text[]) WITH ORDINALITY AS given (name, place)
)::text
