SELECT pgqueue_extend(1, 3600);
