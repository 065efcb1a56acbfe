SELECT pg_is_in_recovery(),
    greatest(date_part('epoch', clock_timestamp() - pg_last_xact_replay_timestamp()), 0)
