"""Schedules: tasks that are enqueued at the times of a cron expression or an interval.

cron:     which times these are; nothing here knows the database
declare:  ``@schedule`` and ``PGQUEUE["SCHEDULES"]``, validated
policy:   what the task says about its jobs, and their keys, as the row keeps it
fire:     the round of a supervisor that turns due runs into jobs
"""
