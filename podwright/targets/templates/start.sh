#!/bin/bash
# Attempt {{ number }} of run {{ name }} on one of its hosts: $1 is its number. Variables of the launcher's shell come through stdin.
cd "$(dirname "$0")" || exit 1
attempt=$PWD
{% if shared -%}
cd {{ cwd }} || exit 1
{% else -%}
cd ../../../.. || exit 1
{% endif -%}
{% include "setup.sh" -%}
{% if not shared -%}
code=$(cd ../code && pwd) || exit 1
export PYTHONPATH=$code${PYTHONPATH:+:$PYTHONPATH}
{% endif -%}
export MASTER_ADDR={{ address }} MASTER_PORT={{ port }}
{% if check -%}
[ "$2" != check ] || exec {{ python }} -m podwright.targets.hosts.on_host check "$attempt" "$1"
{% endif -%}
exec {{ python }} -m podwright.targets.hosts.on_host keep "$attempt" "$1"
