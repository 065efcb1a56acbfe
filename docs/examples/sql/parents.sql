SELECT parent_id, name, state, if_failed FROM pgqueue_parents(57);
