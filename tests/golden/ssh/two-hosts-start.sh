#!/bin/bash
# Attempt 2 of run r on one of its hosts: $1 is its number. Variables of the launcher's shell come through stdin.
cd "$(dirname "$0")" || exit 1
attempt=$PWD
cd ../../../.. || exit 1
trap 'echo '"'"'a line of the target'"'"'"'"'"'"'"'"'s setup ended the shell: source /etc/profile.d/modules.sh'"'"' >&2; exit 1' EXIT
eval 'source /etc/profile.d/modules.sh' < /dev/null || { trap - EXIT; echo 'a line of the target'"'"'s setup failed: source /etc/profile.d/modules.sh' >&2; exit 1; }
trap - EXIT
trap 'echo '"'"'a line of the target'"'"'"'"'"'"'"'"'s setup ended the shell: module load '"'"'"'"'"'"'"'"'cuda/12.4'"'"'"'"'"'"'"'"' # the newest'"'"' >&2; exit 1' EXIT
eval 'module load '"'"'cuda/12.4'"'"' # the newest' < /dev/null || { trap - EXIT; echo 'a line of the target'"'"'s setup failed: module load '"'"'cuda/12.4'"'"' # the newest' >&2; exit 1; }
trap - EXIT
code=$(cd ../code && pwd) || exit 1
export PYTHONPATH=$code${PYTHONPATH:+:$PYTHONPATH}
export MASTER_ADDR=gpu-1 MASTER_PORT=29988
exec "$HOME"/venv/bin/python -m podwright.targets.hosts.on_host keep "$attempt" "$1"
