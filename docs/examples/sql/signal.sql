SELECT pgqueue_signal(57, 'decided', '{"by": "ann", "decision": "yes"}');
