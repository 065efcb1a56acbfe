"""A worker without Django. It finds its database by PGHOST, PGDATABASE and the other variables of libpq."""

import json
import os
import signal
import socket
import time
import traceback
from threading import Event, Thread

import psycopg
from psycopg.rows import namedtuple_row

QUEUES = ["media"]
BEAT = float(os.environ.get("BEAT", "5"))  # seconds; at most a third of LEASE
BURST = "BURST" in os.environ  # end when there is nothing to do
TASKS = {"media.ratio": lambda one, other: one / other, "media.wait": time.sleep}
stop = Event()


def beat(worker):
    """Send heartbeats on a second connection, even while a job keeps the first one busy."""
    with psycopg.connect(autocommit=True, row_factory=namedtuple_row) as db:
        while not stop.wait(BEAT):
            answer = db.execute("SELECT * FROM pgqueue_heartbeat(%s)", [worker]).fetchone()
            if not answer.registered:
                os._exit(1)  # counted as dead, and other workers run its jobs now
            if answer.asked_to_end:
                stop.set()


def run(db, worker, job):
    began, result, error, delay = time.monotonic(), None, None, 0
    try:
        if job.task_path not in TASKS:
            outcome, delay = "unknown", 30
        else:
            outcome, result = "done", TASKS[job.task_path](*job.args, **job.kwargs)
    except Exception as problem:
        outcome, delay = ("retry", 15 * 2**job.attempts) if job.attempts_left > 0 else ("failed", 0)
        trace = traceback.format_exc()
        error = {"class": type(problem).__name__, "message": str(problem), "traceback": trace,
                 "worker": str(worker), "attempt": job.attempts}  # fmt: skip
    started_ago = None if outcome == "unknown" else time.monotonic() - began
    try:
        db.execute(
            "CALL pgqueue_finish(%s, %s, %s, result => %s, error => %s, delay => %s, started_ago => %s)",
            [job.id, job.lease, outcome, json.dumps(result), error and json.dumps(error), delay, started_ago],
        )
    except psycopg.IntegrityError as refusal:  # 23Q01 to 23Q03: the lease was lost
        print(refusal, flush=True)


def main():
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with psycopg.connect(autocommit=True, row_factory=namedtuple_row) as db:
        register = "SELECT pgqueue_register_worker(%s, %s, pid => %s) AS id"
        worker = db.execute(register, [socket.gethostname(), QUEUES, os.getpid()]).fetchone().id
        Thread(target=beat, args=[worker], daemon=True).start()
        while not stop.is_set():
            job = db.execute("SELECT * FROM pgqueue_claim(%s, 1, %s)", [QUEUES, worker]).fetchone()
            if job:
                run(db, worker, job)
            elif BURST:
                break
            else:
                stop.wait(1)
        stop.set()
        db.execute("SELECT pgqueue_unregister_worker(%s)", [worker])


if __name__ == "__main__":
    main()
