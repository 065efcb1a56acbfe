-- Internal. Name this database: the alias by which projects and ids call it, and a number from 0 to 511, which the
-- other shards do not have. From now on, new ids begin at number * 2^44, so an id belongs to one shard only, and stays
-- below 2^53, to which JavaScript counts exactly. The name may change, the number may not.
CREATE FUNCTION _pgqueue_name_shard(name text, number integer) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    first bigint := number::bigint << 44;
    held integer;
BEGIN
    INSERT INTO pgqueue_shard AS shard (name, number) VALUES (name, number)
    ON CONFLICT (one) DO UPDATE SET name = excluded.name
    RETURNING shard.number INTO held;
    IF held <> _pgqueue_name_shard.number THEN
        RAISE EXCEPTION 'pgqueue: shard: this database has the number %, which cannot become %', held, number
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Race: an enqueue takes an id between these two. No sequence gets from below `first` to `first` in this way.
    IF (SELECT last_value FROM pgqueue_job_id_seq) < first THEN
        PERFORM setval('pgqueue_job_id_seq', first, true);
    END IF;
END $$;

-- Internal. The name and the number of this database, and whether it takes no more jobs that are spread over the
-- shards. No row: it has no name.
CREATE FUNCTION _pgqueue_shard(OUT name text, OUT number integer, OUT is_draining boolean) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT shard.name, shard.number, shard.is_draining FROM pgqueue_shard AS shard
$$;

-- Internal. From now on, leave this database out where jobs are spread over the shards, or let it take part again.
-- Enqueuing processes notice this within ten seconds. Returns whether it has a name.
CREATE FUNCTION _pgqueue_drain_shard(draining boolean DEFAULT true) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE pgqueue_shard AS shard SET is_draining = draining;
    RETURN FOUND;
END $$;
