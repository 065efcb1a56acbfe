SET LOCAL pgqueue.notify = 'off';
