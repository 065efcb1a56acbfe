SELECT parent_id, name, state, if_failed FROM pgqueue_waits_for(57);
