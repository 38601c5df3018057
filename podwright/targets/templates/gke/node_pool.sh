#!/usr/bin/env bash
# node_pool.sh: creates the node pools for {{ recipe | comment }}: {{ num_slices }} of {{ nodes_per_slice }} {{ machine_type | comment }}, one for each slice ({{ topology }}).
#   bash node_pool.sh
{% if provisioning == "flex-start" %}
# Nodes come when the pods of a run ask for them, and end {{ hours }} h after their start at the latest. cleanup.sh deletes the pools.
{% else %}
# Nodes cost from the moment they exist until cleanup.sh deletes their pool; nothing in the cloud ends them by itself.
{% endif %}
# A pool that exists is left as it is. Kueue must know the slice: `xpk cluster adapt` writes its queue, and makes no node pools.
set -uo pipefail
{% include "gke/settings.sh" %}
places=({% for place in places %}{{ place | quoted }}{{ " " if not loop.last }}{% endfor %})   # {{ "ZONE/RESERVATION" if provisioning == "reserved" else "zones, " ~ provisioning }}: tried in this order
pools=({% for pool in pools %}{{ pool }}{{ " " if not loop.last }}{% endfor %})
{% if policy %}
policy={{ policy | quoted }}

# The workload policy: nodes of one pool lie in one block of that topology. Without it pods ask for nodes that never exist.
if ! gcloud compute resource-policies describe "$policy" --region={{ region | quoted }} --project="$project" --format='value(name)' > /dev/null 2>&1; then
  {{ pool_calls.policy }} ||
    fail "workload policy $policy could not be created"
fi
{% endif %}

facts=$(gcloud container clusters describe "$cluster" --location="$location" --project="$project" --format='value(currentMasterVersion{{ ",networkConfig.enableMultiNetworking" if pool_calls.networks }})') ||
  fail "cluster $cluster in $location cannot be described"
version=${facts%%$'\t'*}

status_of() {   # POOL: prints nothing for a pool that does not exist
  gcloud container node-pools list --cluster="$cluster" --location="$location" --project="$project" --filter="name=$1" --format='value(status)'
}

create() {   # in $zone{{ " from $reservation" if provisioning == "reserved" }}
{% if pool_calls.networks %}
  # Several network interfaces for each host join slices faster, where the cluster was created for them
  if [ "${facts##*$'\t'}" = True ]; then
    {{ pool_calls.networks }}
    return
  fi
{% endif %}
  {{ pool_calls.create }}
}

delete() {   # of a pool that was created here and has no nodes; it would fill itself later, and cost then
  {{ pool_calls.delete }} ||
    fail "node pool $pool could not be deleted; delete it before you try again, because it may fill itself later"
}

for pool in "${pools[@]}"; do
  status=$(status_of "$pool") || fail "the node pools of cluster $cluster cannot be listed"
  if [ -n "$status" ]; then
    [ "$status" = RUNNING ] || fail "node pool $pool exists and is $status; bash cleanup.sh deletes it"
    echo "ok: node pool $pool exists"
    continue
  fi
  created=""
  for place in "${places[@]}"; do
    zone=${place%%/*}
{% if provisioning == "reserved" %}
    reservation=${place#*/}
{% endif %}
    echo "creating node pool $pool in $zone{{ " from reservation $reservation" if provisioning == "reserved" }} ..."
    if create; then
      created=yes
      break
    fi
    left=$(status_of "$pool") || fail "whether node pool $pool was created is not known; look at it before you try again"
    [ -z "$left" ] || delete
  done
  [ -n "$created" ] || fail "node pool $pool could not be created in any zone{{ ' or from any reservation' if provisioning == "reserved" }}; the messages of gcloud are above"
  echo "ok: node pool $pool was created"
done
