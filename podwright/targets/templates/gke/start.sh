#!/usr/bin/env bash
# start.sh: in each pod, installs the packages of the trainer and starts its process. Its files come from a ConfigMap.
#   bash start.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=${PODWRIGHT_WORK:-/tmp/podwright}
mkdir -p "$work/run"
echo "podwright: installing packages on $(hostname)"
tar -xzf "$here/code.tar.gz" -C "$work"
pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary=:all: --require-hashes --requirement "$here/requirements.txt"
cp "$here/recipe.json" "$work/run/recipe.json"

# GKE names the hosts of the slice in the order of their numbers; the first one is where all processes meet.
IFS=, read -r -a hosts <<< "${TPU_WORKER_HOSTNAMES:-localhost}"
rank=${TPU_WORKER_ID:-0}
if [ "{{ "${#hosts[@]}" }}" != {{ nodes }} ]; then
  echo "error: the slice has {{ nodes }} hosts, and TPU_WORKER_HOSTNAMES names {{ "${#hosts[@]}" }}: ${TPU_WORKER_HOSTNAMES:-}" >&2
  exit 1
fi
{% if nodes > 1 %}
export JAX_COORDINATOR_ADDRESS=${hosts[0]}:{{ port }} JAX_NUM_PROCESSES={{ nodes }} JAX_PROCESS_ID=$rank
{% endif %}
export PYTHONPATH=$work/code PYTHONUNBUFFERED=1 JAX_PLATFORMS=${JAX_PLATFORMS:-tpu,cpu}
echo "podwright: process $rank of {{ nodes }} on $(hostname)"
cd "$work"
exec python -m podwright.train "$work/run" --attempt 1{% if bucket %} --storage "$PODWRIGHT_STORAGE"{% endif %}

