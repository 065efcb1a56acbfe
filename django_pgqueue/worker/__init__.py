"""The worker: a supervisor, its processes, and in each a producer, job threads and an event loop.

supervisor   starts processes, watches them, sends their heartbeats; it runs no task
process      one worker process: ``producer`` claims and reports, ``executor`` runs
spawn        how a process starts and ends; started_jobs is the memory that it shares with its supervisor
isolation    a process for one job that has crashed before
inline       a worker without threads; one_process uses it on the main thread
"""
