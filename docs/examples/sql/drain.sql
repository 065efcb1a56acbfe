SELECT pgqueue_drain(4711, 'stop');
