#!/usr/bin/env bash
# A worker in bash. psql finds its database by PGHOST, PGDATABASE and the other variables of libpq.
set -euo pipefail

ask() { psql -XqAt -F $'\x1f' -v ON_ERROR_STOP=1 "$@"; }

worker=$(ask -v host="$(uname -n)" -v pid=$$ <<< "SELECT pgqueue_register_worker(:'host', '{shell}', pid => :pid)")

# Heartbeats. If this script is killed, they end; if the worker counts as dead, so does the script.
(while sleep "${BEAT:-5}" && kill -0 $$ 2> /dev/null; do
    answer=$(ask -c "SELECT registered, asked_to_end FROM pgqueue_heartbeat($worker)") || continue
    [[ $answer == t* ]] || kill -9 $$
    [[ $answer == *t ]] && kill -TERM $$
done) &
trap 'kill %1 2> /dev/null; ask -c "SELECT pgqueue_unregister_worker($worker)" > /dev/null' EXIT
stopped=
trap 'stopped=1' TERM INT

while [[ ! $stopped ]]; do
    job=$(ask -c "SELECT id, lease, attempts, attempts_left, task_path, args ->> 0
        FROM pgqueue_claim('{shell}', 1, $worker)")
    if [[ ! $job ]]; then
        [[ ${BURST:-} ]] && break
        sleep 1
        continue
    fi
    IFS=$'\x1f' read -r -d '' id lease attempts left task argument <<< "$job" || true
    argument=${argument%$'\n'} started=$SECONDS outcome=done delay=0
    case $task in
        shell.checksum) output=$(sha256sum "$argument" 2>&1) || outcome=retry ;;
        shell.wait) output=$(sleep "$argument" 2>&1) || outcome=retry ;;
        *) output="no such task" outcome=unknown delay=30 ;;
    esac
    if [[ $outcome == retry ]]; then
        ((left > 0)) && delay=$((15 * 2 ** attempts)) || outcome=failed
    fi
    ask -v id="$id" -v lease="$lease" -v outcome="$outcome" -v delay="$delay" -v output="$output" \
        -v ago=$((SECONDS - started)) -v worker="$worker" -v attempt="$attempts" <<- 'SQL' || true
		CALL pgqueue_finish(:id, :lease, :'outcome', delay => :delay,
		    result => CASE WHEN :'outcome' = 'done' THEN to_jsonb(:'output'::text) END,
		    error => CASE WHEN :'outcome' IN ('retry', 'failed') THEN jsonb_build_object(
		        'class', 'Exit', 'message', :'output', 'traceback', '', 'worker', :'worker',
		        'attempt', :attempt) END,
		    started_ago => CASE WHEN :'outcome' <> 'unknown' THEN :ago END);
	SQL
done
