SELECT pgqueue_progress(57, 40, 100, 'reading');
