-- Add two histograms element by element; the shorter one is filled up with zeros.
CREATE FUNCTION pgqueue_add_histograms_v1(p_one bigint[], p_other bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(coalesce(one, 0) + coalesce(other, 0) ORDER BY place)
    FROM unnest(p_one, p_other) WITH ORDINALITY AS pair (one, other, place)
$$;
