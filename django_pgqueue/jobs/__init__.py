"""What happens to a call: it is enqueued, claimed, run in steps, finished, or changed from outside.

enqueue          turn a call into a row
claim, finish    what a worker does with rows: take some, and report outcomes
limits           what holds jobs back: pauses and limits; and drain a worker
batches          jobs that are counted, waited for, cancelled and retried together
current, steps   what a task can ask, do and report while it runs
payloads         rows of a project that are calls, with the keys of their jobs
results          what ``django.tasks`` sees of a job
"""
