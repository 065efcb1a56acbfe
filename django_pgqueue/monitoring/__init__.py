"""Figures of the queue, for the admin, the commands, the metrics and the health check alike.

spans            what ran, from the statistics, and how fast
depth, queues    what waits, from the leaf of live jobs, with counts that end at a limit; who holds it up
workers          who works
limits           what runs and waits under each limit
jobs, failures   what ended last, the steps of a job, and failures by group
health           these figures against the thresholds of the settings, and the health in one sentence
database         locks, old transactions, dead rows, connections, traffic

The figures are not read from the history of jobs, so the time that they take depends neither on the history
nor on the backlog.
"""
