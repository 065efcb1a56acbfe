-- Refuse a new job of a role that may only enqueue if its arguments and metadata are larger than the server allows,
-- whatever limit the caller has given: JSON without spaces is what Python measures, and this has some, so a job of the
-- full size that Python accepts may take a little more here.
CREATE FUNCTION pgqueue_check_size_v1() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    allowed integer := coalesce((SELECT bound.max_json_bytes FROM pgqueue_bound AS bound), 1048576);
    bytes integer := octet_length(NEW.args::text || NEW.kwargs::text || NEW.metadata::text);
BEGIN
    IF bytes > allowed + allowed / 2 THEN
        RAISE EXCEPTION 'pgqueue: the arguments take % bytes as JSON, but the limit is %: store the data and pass its key',
            bytes, allowed USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN NEW;
END $$;
