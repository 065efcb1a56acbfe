-- Store MAX_JSON_BYTES from the settings of a worker that starts. The row is written only if it is another value.
CREATE FUNCTION pgqueue_retain_bound_v1(p_max_bytes integer) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO pgqueue_bound AS bound (max_json_bytes) VALUES (p_max_bytes)
    ON CONFLICT (one) DO UPDATE SET max_json_bytes = p_max_bytes
        WHERE bound.max_json_bytes IS DISTINCT FROM p_max_bytes
$$;
