#!/usr/bin/env bash
# start.sh: in each pod, installs the packages of the trainer, starts its process and passes signals on to it. Its files come from a ConfigMap.
#   bash start.sh RUN COMMAND...    RUN is the directory of the run below the one in which the command is started
set -uo pipefail
# The first process of a container gets no signal that it does not handle: bash takes SIGTERM, also while packages are installed.
child="" stopping="" interrupted="" asked=""
trap 'stopping=1' TERM
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d -t podwright.XXXXXX) run=$1
shift
fail() {
  echo "error: $1" >&2
  exit 1
}

# GKE names the hosts of a slice in the order of their numbers; all processes meet at the first host of the first slice.
IFS=, read -r -a hosts <<< "${TPU_WORKER_HOSTNAMES:-localhost}"
rank=${TPU_WORKER_ID:-0}
[ "{{ "${#hosts[@]}" }}" = {{ hosts }} ] ||
  fail "the slice has {{ hosts }} hosts, and TPU_WORKER_HOSTNAMES names {{ "${#hosts[@]}" }}: ${TPU_WORKER_HOSTNAMES:-}"
{% if slices > 1 %}
[ "${MEGASCALE_NUM_SLICES:-}" = {{ slices }} ] && [ -n "${MEGASCALE_SLICE_ID:-}" ] && [ -n "${MEGASCALE_COORDINATOR_ADDRESS:-}" ] ||
  fail "the run has {{ slices }} slices, and GKE set MEGASCALE_NUM_SLICES='${MEGASCALE_NUM_SLICES:-}' MEGASCALE_SLICE_ID='${MEGASCALE_SLICE_ID:-}' MEGASCALE_COORDINATOR_ADDRESS='${MEGASCALE_COORDINATOR_ADDRESS:-}'"
rank=$((MEGASCALE_SLICE_ID * {{ hosts }} + rank))
hosts[0]=${MEGASCALE_COORDINATOR_ADDRESS%:*}
{% endif %}
{% if hosts * slices > 1 %}
export JAX_COORDINATOR_ADDRESS=${hosts[0]}:{{ port }} JAX_NUM_PROCESSES={{ hosts * slices }} JAX_PROCESS_ID=$rank
{% endif %}
export PYTHONPATH=$work/code PYTHONUNBUFFERED=1 JAX_PLATFORMS=${JAX_PLATFORMS:-tpu,cpu}
{% for variable in environment %}
export {{ variable }}
{% endfor %}

# The log of each process is in the directory of the run too, whose trainer leaves it in the bucket.
attempt=$work/$run/attempts/{{ attempt }}
mkdir -p "$attempt" || fail "$attempt cannot be created"
log=$attempt/log.txt
[ "$rank" = 0 ] || log=$attempt/log-$rank.txt
exec 3>&1
exec > >(trap '' TERM INT; exec tee -a "$log" >&3) 2>&1
tee=$!

taken() {
  python -c 'import urllib.request as r
where = r.Request("http://metadata.google.internal/computeMetadata/v1/instance/preempted", headers={"Metadata-Flavor": "Google"})
raise SystemExit(r.urlopen(where, timeout=2).read().strip() != b"TRUE")' 2> /dev/null
}
pass_on() {
  stopping=1 interrupted=1
  [ -n "$child" ] || return 0
  asked=$child
  kill -TERM "$child" 2> /dev/null
  # A node of spot capacity that is taken has about 25 s: the second signal says that there is no time to finish the step
  (! taken || { echo "podwright: this node is being preempted"; kill -INT "$child" 2> /dev/null; }) &
}
trap pass_on TERM
start() {
  child=""
  "$@" &
  child=$!
  # A signal may have come before the number of the process was known
  [ -z "$stopping" ] || [ "$asked" = "$child" ] || pass_on
  while interrupted=""; wait "$child"; code=$?; [ -n "$interrupted" ]; do :; done
}

echo "podwright: installing packages on $(hostname)"
tar -xzf "$here/code.tar.gz" -C "$work" && cp "$here"/*.json "$work/$run/" || fail "the files of the run cannot be unpacked to $work"
start pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary=:all: --require-hashes --requirement "$here/requirements.txt"
if [ "$code" = 0 ] && [ -z "$stopping" ]; then
  echo "podwright: process $rank of {{ hosts * slices }} on $(hostname)"
  cd "$work" || exit 1
  start "$@"
fi
# A container ends with this shell: what the process has written last is to be out before
exec >&3 2>&3
for _ in 1 2 3 4 5 6 7 8 9 10; do
  kill -0 "$tee" 2> /dev/null || break
  sleep 0.2
done
exit "$code"
