"""Short rounds that any supervisor may do at any time.

rounds     which rounds there are, and when
recovery   requeue the jobs of dead workers
limits     write the limits that the code declares
schedules  write the schedules that the code and the settings declare
payloads   write the tasks whose calls are rows, which triggers and calls from SQL read
reindex    rebuild indexes that are mostly empty
alerts     report to the project what went wrong
"""
