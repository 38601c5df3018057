{% for line in setup -%}
trap {{ line | ended }} EXIT
eval {{ line | quoted }} < /dev/null || { trap - EXIT; {{ line | failed }}; exit 1; }
trap - EXIT
{% endfor -%}
