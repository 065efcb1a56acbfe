SELECT pgqueue_drain_worker(4711, replace => false);
