#!/usr/bin/env bash
# Three nodes under load, the leader killed every 10 s for 60 s, then everything is read back.
# Usage: scripts/chaos-test.sh [OPTIONS OF raftline chaos]     for example --seconds 30 --seed 7
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
PATH="$here/.venv/bin:$PATH"
command -v raftline >/dev/null || { echo "raftline is not installed: run make venv first" >&2; exit 1; }
exec raftline chaos --preset dqueue "$@"
