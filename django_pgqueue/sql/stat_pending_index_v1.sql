-- The minutes that are not in the sums yet. There are only those of the last minutes, so each figure of a long span
-- reads this index to its end.
CREATE INDEX pgqueue_stat_pending ON pgqueue_stat (minute) WHERE NOT rolled_up;
