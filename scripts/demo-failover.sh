#!/usr/bin/env bash
# A leader dies, another one takes over, no task is lost: step by step, for the eye.
# Usage: scripts/demo-failover.sh [DIRECTORY]   (PORT_BASE=N chooses the ports)
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
PATH="$here/.venv/bin:$PATH"
command -v raftline >/dev/null || { echo "raftline is not installed: run make venv first" >&2; exit 1; }

home=${1:-$(mktemp -d)/raftline-failover}
base=${PORT_BASE:-18180}
export RAFTLINE_SERVER="http://127.0.0.1:$base,http://127.0.0.1:$((base + 1)),http://127.0.0.1:$((base + 2))"

step() { printf '\n\033[1m== %s\033[0m\n' "$1"; }
run() { printf '$ %s\n' "$*"; "$@"; }
leader() {  # of the topic's only partition: NUMBER NAME PID
  raftline topic show tasks --json | python3 -c '
import json, sys
number = json.load(sys.stdin)["partitions"][0]["leader"]
for node in json.load(open(sys.argv[1])):
    if node["id"] == number:
        print(number, node["name"], node["pid"])' "$home/nodes.json"
}
now_ms() { python3 -c 'import time; print(time.time_ns() // 1_000_000)'; }
trap 'raftline down --data-dir "$home"' EXIT

step "Three nodes on this machine"
run raftline up --nodes 3 --data-dir "$home" --port-base "$base" --detach

step "20 tasks are enqueued"
for number in $(seq 20); do raftline task enqueue --type email --payload "{\"n\": $number}"; done | tail -n 1

step "The leader of their partition is killed"
read -r number name pid < <(leader)
echo "leader: $name (node $number, pid $pid)"
run kill -9 "$pid"
began=$(now_ms)
raftline task enqueue --type email --payload '{"n": 21}'
echo "the next task was stored $(($(now_ms) - began)) ms after the kill (the command's own start included)"

step "Another node leads"
read -r _ successor _ < <(leader)
echo "leader: $successor"

step "Every task is there, and is worked off"
run raftline worker --drain --worker-id worker-1
done=$(raftline task list --json | python3 -c '
import json, sys
tasks = json.load(sys.stdin)
rows = tasks["tasks"] if isinstance(tasks, dict) else tasks
print(sum(row["status"] in ("done", "completed") for row in rows))')
echo "$done of 21 tasks done"
[ "$done" -eq 21 ]

step "The dead node comes back and is filled up"
run raftline up --data-dir "$home" --detach
run raftline cluster verify
