-- The ticks that wait for the previous job of their schedule, in order.
CREATE INDEX pgqueue_tick_waiting ON pgqueue_tick (schedule, tick) WHERE outcome = 'waiting';
