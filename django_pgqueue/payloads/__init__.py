"""Typed payloads: tasks whose calls are rows of a table of their own (``models/payload.py``).

declare      what ``@task(payload=...)`` accepts, which columns may be keys, and the payload of one call
store        write payloads with the keys of their jobs; read those of a chunk in one query
synchronize  write the tasks of the code into the table that the triggers, and calls from SQL, read

In SQL: ``payload_insert_v1`` and its neighbors are the triggers, ``sweep_payloads_v2`` the retention.
"""
