CALL pgqueue_finish_one_v1(:job, :lease, 'done', p_result => '{"sent": true}');
