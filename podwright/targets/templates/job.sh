#!/bin/bash
{% for option in options -%}
#SBATCH {{ option }}
{% endfor %}
# Attempt {{ number }} of run {{ name }}. SLURM may start it several times: after a time limit, a preemption, a lost node.
run={{ run }}
attempt=$run/attempts/{{ number }}
say() { echo "podwright: $*"; }
last_word() { printf '{"ending": "%s", "step": null, "detail": "%s", "fix": "%s"}\n' "$1" "$2" "$3" > "$attempt/exit.json"; }
ended() { printf '{"code": %s, "why": "%s", "time": %s}\n' "$code" "$1" "$(date +%s)" > "$here/ended.json"; }
# The newest step that was saved: by the trainer's record, for the checkpoint itself may be in a storage.
saved() { sed -n 's/^{"event": "checkpoint".*"step": \([0-9]*\).*/\1/p' "$run/events.jsonl" 2> /dev/null | sort -n | tail -n 1; }

ln -sfn attempts/{{ number }} "$run/latest"
start=$(( $(ls "$attempt/starts" 2> /dev/null | wc -l) + 1 ))
here=$attempt/starts/$start
mkdir -p "$here"
for file in "$attempt"/exit*.json; do
  [ -e "$file" ] && mv "$file" "$attempt/starts/$((start - 1))/"
done
printf '{"job": %s, "nodes": "%s", "time": %s}\n' "$SLURM_JOB_ID" "$SLURM_JOB_NODELIST" "$(date +%s)" > "$here/begun.json"
saved > "$here/saved"
say "job $SLURM_JOB_ID, start $start, on $SLURM_JOB_NODELIST"

{% if setup -%}
trap 'trap - EXIT; exit 143' TERM # SLURM ends the job, and no line of setup does
{% include "setup.sh" -%}
trap - TERM
{% endif -%}
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || { last_word BAD_INPUT "scontrol named no host of $SLURM_JOB_NODELIST" "check scontrol show hostnames on the node"; exit 1; }
export MASTER_ADDR MASTER_PORT=$((12000 + SLURM_JOB_ID % 20000))

# A node that was lost may not know it yet: its trainer keeps the run until it does.
flock -w 120 "$run/trainer.lock" true || say "another trainer holds $run"
if [ -e "$attempt/stop" ]; then
  last_word STOPPED "stopped before the trainer was started" ""
  exit 0
fi
srun --nodes={{ nodes }} --ntasks={{ tasks }} --cpus-per-task={{ cpus }} --kill-on-bad-exit=1 bash "$attempt/task.sh" "$here"
code=$?

# It left because SLURM asked it to, not a person, and not because it was done.
if [ "$code" = 0 ] && [ ! -e "$attempt/stop" ] && { [ ! -e "$attempt/exit.json" ] || grep -q '"ending": "STOPPED"' "$attempt/exit.json"; }; then
  if [ "$(squeue --noheader --all --jobs="$SLURM_JOB_ID" --format=%T)" != RUNNING ]; then
    ended cancelled
  elif [ "$start" -ge 3 ] && [ "$(saved)" = "$(cat "$attempt/starts/$((start - 2))/saved")" ]; then
    ended fruitless
  else
    ended requeued # before it is true: SLURM ends this script at once
    scontrol requeue "$SLURM_JOB_ID" || ended refused
  fi
else
  ended done
fi
exit "$code"
