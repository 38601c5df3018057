#!/bin/bash
# Attempt 1 of run r on one of its hosts: $1 is its number. Variables of the launcher's shell come through stdin.
cd "$(dirname "$0")" || exit 1
attempt=$PWD
cd ../../../.. || exit 1
code=$(cd ../code && pwd) || exit 1
export PYTHONPATH=$code${PYTHONPATH:+:$PYTHONPATH}
export MASTER_ADDR=127.0.0.1 MASTER_PORT=27798
exec python3 -m podwright.targets.hosts.on_host keep "$attempt" "$1"
