CALL pgqueue_finish(:job, :lease, 'done', result => '{"sent": true}');
