-- Return a random number from 0 to 2^62 - 1, for the ids and leases of workers in other languages. The server draws the
-- digits of a version 4 UUID from its strong source; those between the first and the last eight are not all random. A
-- lease must never come back: a number from a sequence would, after a crash of the server that has lost the commits of
-- the last claims, and then a report of a lost claim would be accepted for another one.
CREATE FUNCTION pgqueue_random_v1() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT ('x' || left(drawn.digits, 8) || right(drawn.digits, 8))::bit(64)::bigint & 4611686018427387903
    FROM (SELECT gen_random_uuid()::text AS digits) AS drawn
$$;
