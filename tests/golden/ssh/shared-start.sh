#!/bin/bash
# Attempt 1 of run r on one of its hosts: $1 is its number. Variables of the launcher's shell come through stdin.
cd "$(dirname "$0")" || exit 1
attempt=$PWD
cd '/nfs/my work' || exit 1
export MASTER_ADDR=10.0.0.1 MASTER_PORT=31828
exec /nfs/python -m podwright.targets.hosts.on_host keep "$attempt" "$1"
