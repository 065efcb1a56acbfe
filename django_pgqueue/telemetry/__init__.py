"""What is collected about the runs of jobs.

log      the line that a worker or a supervisor logs about an attempt
sentry   the tags of its event, if the project has imported Sentry
tracing  the trace context that travels with a job, and its spans, if the project has imported OpenTelemetry
"""
