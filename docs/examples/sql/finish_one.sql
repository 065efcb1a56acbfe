CALL pgqueue_finish_one(:job, :lease, 'done', result => '{"sent": true}');
