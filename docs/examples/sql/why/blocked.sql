SELECT name, limit_key, is_full, allowed, running, place, holders FROM pgqueue_blocked_by(1);
