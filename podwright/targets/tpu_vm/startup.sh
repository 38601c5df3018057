#!/bin/bash
# Run by each worker of a slice at each start: deletes the slice once no run has given a sign of life on this worker for its whole life.
# The workers take turns a minute apart, so that one that cannot is replaced by the next.
metadata=http://metadata.google.internal/computeMetadata/v1/instance
get() { curl -sf -m 20 -H 'Metadata-Flavor: Google' "$metadata/$1"; }
life=$(get attributes/podwright-life-s)
resource=$(get attributes/podwright-resource)
worker=$(get attributes/agent-worker-number || echo 0)
{ [ "$life" ] && [ "$resource" ]; } || exit 0
mkdir -p /var/lib/podwright && chmod 1777 /var/lib/podwright
sign=/var/lib/podwright/alive
[ -e "$sign" ] || { touch "$sign" && chmod 666 "$sign"; }
turn=$((life < 600 ? 1 : 60))
watch() {
  while sleep "$turn"; do
    silent=$(($(date +%s) - $(stat -c %Y "$sign")))
    [ "$silent" -ge $((life + worker * turn)) ] || continue
    token=$(get service-accounts/default/token | sed 's/.*"access_token" *: *"\([^"]*\)".*/\1/')
    printf 'Authorization: Bearer %s\n' "$token" | curl -s -m 60 -X DELETE -H @- "https://tpu.googleapis.com/v2/$resource"
  done
}
watch < /dev/null > /var/lib/podwright/timer.log 2>&1 &
