SELECT pgqueue_extend(ARRAY[1], '1 hour');
