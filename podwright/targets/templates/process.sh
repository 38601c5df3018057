#!/bin/bash
# One process of the attempt: $1 is its number, $2 that on its host.
rank=$1 local=$2 size={{ tasks }}
run=$(cd "$(dirname "$0")/../.." && pwd)
python={{ python }}
echo "podwright: process $rank of $size on $(hostname)"
{% for variable in environment -%}
export {{ variable }}
{% endfor -%}
{% include "variables.sh" %}
{% if check -%}
[ "$3" != check ] || exec {{ check }}
{% endif -%}
exec {{ command }}
