SELECT pgqueue_set_limit('limit', 'crm', rate => 100, per => '1 minute', burst => 10);
SELECT pgqueue_take_rate('crm', 'acme');  -- 0: taken; otherwise the seconds until it would be allowed
SELECT pgqueue_take_rate('crm', 'acme', 3);
