#!/bin/bash
#SBATCH --job-name=r.2-e1b24eb7
#SBATCH --chdir=/shared/work
#SBATCH --output=/shared/runs/r/attempts/2/log.txt
#SBATCH --partition=gpu
#SBATCH --account=lab
#SBATCH --qos=normal
#SBATCH --constraint=h100
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=8
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --exclusive
#SBATCH --mail-type=END

# Attempt 2 of run r. SLURM may start it several times: after a time limit, a preemption, a lost node.
run=/shared/runs/r
attempt=$run/attempts/2
say() { echo "podwright: $*"; }
last_word() { printf '{"ending": "%s", "step": null, "detail": "%s", "fix": "%s"}\n' "$1" "$2" "$3" > "$attempt/exit.json"; }
ended() { printf '{"code": %s, "why": "%s", "time": %s}\n' "$code" "$1" "$(date +%s)" > "$here/ended.json"; }
# The newest step that was saved: by the trainer's record, for the checkpoint itself may be in a storage.
saved() { sed -n 's/^{"event": "checkpoint".*"step": \([0-9]*\).*/\1/p' "$run/events.jsonl" 2> /dev/null | sort -n | tail -n 1; }

ln -sfn attempts/2 "$run/latest"
start=$(( $(ls "$attempt/starts" 2> /dev/null | wc -l) + 1 ))
here=$attempt/starts/$start
mkdir -p "$here"
for file in "$attempt"/exit*.json; do
  [ -e "$file" ] && mv "$file" "$attempt/starts/$((start - 1))/"
done
printf '{"job": %s, "nodes": "%s", "time": %s}\n' "$SLURM_JOB_ID" "$SLURM_JOB_NODELIST" "$(date +%s)" > "$here/begun.json"
saved > "$here/saved"
say "job $SLURM_JOB_ID, start $start, on $SLURM_JOB_NODELIST"

trap 'trap - EXIT; exit 143' TERM # SLURM ends the job, and no line of setup does
trap 'last_word BAD_INPUT '"'"'a line of the target'"'"'"'"'"'"'"'"'s setup ends the shell on the cluster: module load cuda/12.4'"'"' '"'"'remove exit or exec from that line under setup of the target'"'"'; exit 1' EXIT
eval 'module load cuda/12.4' < /dev/null || { trap - EXIT; last_word BAD_INPUT 'a line of the target'"'"'s setup failed on the cluster: module load cuda/12.4' 'fix setup of the target, then resume the run'; exit 1; }
trap - EXIT
trap 'last_word BAD_INPUT '"'"'a line of the target'"'"'"'"'"'"'"'"'s setup ends the shell on the cluster: export WHERE='"'"'"'"'"'"'"'"'a \"b\"'"'"'"'"'"'"'"'"''"'"' '"'"'remove exit or exec from that line under setup of the target'"'"'; exit 1' EXIT
eval 'export WHERE='"'"'a "b"'"'"'' < /dev/null || { trap - EXIT; last_word BAD_INPUT 'a line of the target'"'"'s setup failed on the cluster: export WHERE='"'"'a \"b\"'"'"'' 'fix setup of the target, then resume the run'; exit 1; }
trap - EXIT
trap - TERM
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || { last_word BAD_INPUT "scontrol named no host of $SLURM_JOB_NODELIST" "check scontrol show hostnames on the node"; exit 1; }
export MASTER_ADDR MASTER_PORT=$((12000 + SLURM_JOB_ID % 20000))

# A node that was lost may not know it yet: its trainer keeps the run until it does.
flock -w 120 "$run/trainer.lock" true || say "another trainer holds $run"
if [ -e "$attempt/stop" ]; then
  last_word STOPPED "stopped before the trainer was started" ""
  exit 0
fi
srun --nodes=2 --ntasks=2 --cpus-per-task=16 --kill-on-bad-exit=1 bash "$attempt/task.sh" "$here"
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
