#!/bin/bash
# One process of the trainer; SLURM says which. The first one's output is the job's own.
attempt=/shared/runs/r/attempts/1
rank=$SLURM_PROCID size=$SLURM_NTASKS local=$SLURM_LOCALID
[ "$rank" = 0 ] || exec >> "$attempt/log-$rank.txt" 2>&1
echo "podwright: process $rank of $size on $(hostname), job $SLURM_JOB_ID"
export RANK=$rank WORLD_SIZE=$size LOCAL_RANK=$local LOCAL_WORLD_SIZE=8
export JAX_COORDINATOR_ADDRESS=$MASTER_ADDR:$MASTER_PORT JAX_NUM_PROCESSES=$size JAX_PROCESS_ID=$rank
export PODWRIGHT_GPUS_PER_NODE=8 # a trainer that sees none of them refuses
# Without it jax takes the number of the process on its node for the one GPU that it is to use.
export JAX_LOCAL_DEVICE_IDS=$local
export JAX_PLATFORMS=${JAX_PLATFORMS:-cuda,cpu}
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-16} # PyTorch else takes every core of the node

# Processes that the kernel has killed for memory in this one's cgroup (v2, v1).
oom_kills() {
  local v2 v1
  v2=$(sed -n 's/^0:://p' /proc/self/cgroup) v1=$(sed -n 's/^[0-9]*:\([^:]*,\)\?memory\(,[^:]*\)\?://p' /proc/self/cgroup)
  cat "/sys/fs/cgroup$v2/memory.events" "/sys/fs/cgroup/memory$v1/memory.oom_control" 2> /dev/null | sed -n 's/^oom_kill //p'
}
before=$(oom_kills)
trap : USR1 TERM # for the trainer to act on
/shared/venv/bin/python -m podwright.train /shared/runs/r --attempt 1
code=$?
[ "$code" != 137 ] || [ "$(oom_kills)" = "$before" ] || echo "podwright: process $rank on $(hostname): the kernel killed it for memory (oom_kill of its cgroup)"
case $code in
  # Saved and left, or left (by USR1, by TERM) before there was anything to save: no fault, for which srun would end the other processes.
  3 | 138 | 143) exit 0 ;;
esac
[ "$code" = 0 ] || echo "task.sh: $(hostname): task $rank: Exited with exit code $code" >> "$1/failed"
exit $code
