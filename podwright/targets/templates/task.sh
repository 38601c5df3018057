#!/bin/bash
# One process of the trainer; SLURM says which. The first one's output is the job's own.
attempt={{ attempt }}
rank=$SLURM_PROCID size=$SLURM_NTASKS local=$SLURM_LOCALID
[ "$rank" = 0 ] || exec >> "$attempt/log-$rank.txt" 2>&1
echo "podwright: process $rank of $size on $(hostname), job $SLURM_JOB_ID"
{% for variable in environment -%}
export {{ variable }}
{% endfor -%}
{% include "variables.sh" %}
trap : USR1 TERM # for the trainer to act on
{{ trainer }}
code=$?
case $code in
  # Saved and left, or left (by USR1, by TERM) before there was anything to save: no fault, for which srun would end the other processes.
  3 | 138 | 143) exit 0 ;;
esac
exit $code
