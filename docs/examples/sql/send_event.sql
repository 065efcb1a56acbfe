SELECT pgqueue_send_event(57, 'decided', '{"by": "ann", "decision": "yes"}');
