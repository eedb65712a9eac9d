#!/usr/bin/env bash
# The basics in a minute: a cluster of three, tasks, priorities, delays, retries, dead letters, traces.
# Usage: scripts/demo-basic.sh [DIRECTORY]   (PORT_BASE=N chooses the ports)
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
PATH="$here/.venv/bin:$PATH"
command -v raftline >/dev/null || { echo "raftline is not installed: run make venv first" >&2; exit 1; }

home=${1:-$(mktemp -d)/raftline-demo}
base=${PORT_BASE:-18080}
export RAFTLINE_SERVER="http://127.0.0.1:$base,http://127.0.0.1:$((base + 1)),http://127.0.0.1:$((base + 2))"

step() { printf '\n\033[1m== %s\033[0m\n' "$1"; }
run() { printf '$ %s\n' "$*"; "$@"; }
trap 'raftline down --data-dir "$home"' EXIT

step "Three nodes on this machine"
run raftline up --nodes 3 --data-dir "$home" --port-base "$base" --detach

step "A task is enqueued, leased, acked"
task=$(raftline task enqueue -type email -payload '{"to":"user@example.com"}')
run raftline task get "$task"
run raftline worker --drain --worker-id worker-1
run raftline task get "$task"

step "The same idempotency key is the same task"
run raftline task enqueue --type report --idempotency-key r-1
run raftline task enqueue --type report --idempotency-key r-1

step "Higher priority first"
run raftline task enqueue --type newsletter --priority low
run raftline task enqueue --type payment --priority critical
run raftline worker --drain --worker-id worker-2

step "A message waits for its time"
raftline topic create orders --partitions 1 --set max_retries=1 --set backoff_ms=100ms >/dev/null
run raftline produce orders -m "two seconds later" --delay 2s
run raftline scheduled list orders
run raftline consume orders --group billing --follow -n 1

step "What fails too often becomes a dead letter"
bad=$(raftline produce orders -m "cannot be done")
run raftline worker --topic orders --group billing --exec 'echo "no way" >&2; exit 1' --drain
sleep 0.5
run raftline worker --topic orders --group billing --exec 'echo "no way" >&2; exit 1' --drain
for _ in $(seq 50); do
    raftline dlq list orders --json | grep -q MAX_RETRIES && break
    sleep 0.2
done
run raftline dlq list orders

step "Every message tells where it has been"
run raftline trace "$bad"

step "The log keeps it all: replay"
run raftline consume orders --group replay --from-time -1h

step "Redriven, it is done this time"
run raftline dlq redrive orders --all
run raftline consume orders --group billing
run raftline trace "$bad"

step "Nothing was lost, all replicas agree"
run raftline cluster verify

step "That was it; the data is in $home"
