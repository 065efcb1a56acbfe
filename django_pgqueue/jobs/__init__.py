"""What happens to a call: it is enqueued, claimed, run in steps, finished, or changed from outside.

call, enqueue    check a call, and turn it into a row
claim, finish    what a worker does with rows: take some, and report outcomes
control, pause   cancel, retry, run now, edit, extend, drain; what is paused
limits           how many jobs may run or start
batches          jobs that are counted, waited for, cancelled and retried together
current, steps   what a task can ask and do while it runs
progress, track  how far it is
log              the line about each attempt
poller           waits for jobs of others (``job.join()``)
"""
