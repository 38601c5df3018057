#!/usr/bin/env bash
# node_pool.sh: creates the node pools for {{ recipe | comment }}: {{ num_slices }} of {{ nodes_per_slice }} {{ machine_type | comment }}, one for each slice ({{ topology }}).
#   bash node_pool.sh
# Nodes cost from the moment they exist until cleanup.sh deletes their pool; nothing in the cloud ends them by itself.
# A pool that exists is left as it is. Kueue must know the slice: `xpk cluster adapt` writes its queue, and makes no node pools.
set -uo pipefail
{% include "gke/settings.sh" %}
places=({% for place in places %}{{ place | quoted }}{{ " " if not loop.last }}{% endfor %})   # {{ "ZONE/RESERVATION" if reservations else "zones, on demand" }}: tried in this order
machine_type={{ machine_type | quoted }}
pools=({% for pool in pools %}{{ pool }}{{ " " if not loop.last }}{% endfor %})
label={{ label | quoted }}   # cleanup.sh deletes pools with this label alone
{% if policy %}
policy={{ policy | quoted }}
region={{ region | quoted }}

# The workload policy: nodes of one pool lie in one block of that topology. Without it pods ask for nodes that never exist.
if ! gcloud compute resource-policies describe "$policy" --region="$region" --project="$project" --format='value(name)' > /dev/null 2>&1; then
  gcloud compute resource-policies create workload-policy "$policy" --region="$region" --project="$project" --type=HIGH_THROUGHPUT --accelerator-topology={{ topology }} ||
    fail "workload policy $policy could not be created"
fi
{% endif %}

version=$(gcloud container clusters describe "$cluster" --location="$location" --project="$project" --format='value(currentMasterVersion)') ||
  fail "cluster $cluster in $location cannot be described"

status_of() {   # POOL: prints nothing for a pool that does not exist
  gcloud container node-pools list --cluster="$cluster" --location="$location" --project="$project" --filter="name=$1" --format='value(status)'
}

create() {   # POOL ZONE RESERVATION
  local capacity=()
  [ -z "$3" ] || capacity=(--reservation-affinity=specific --reservation="$3")
  gcloud container node-pools create "$1" --cluster="$cluster" --location="$location" --project="$project" \
    --node-locations="$2" --machine-type="$machine_type" --num-nodes={{ nodes_per_slice }} --node-version="$version" \
{% if policy %}
    --placement-policy="$policy" \
{% elif nodes_per_slice > 1 %}
    --placement-type=COMPACT --tpu-topology={{ topology }} \
{% endif %}
    --scopes=storage-full,gke-default,https://www.googleapis.com/auth/cloud-platform \
    --enable-gvnic --max-pods-per-node=15 --node-labels="podwright-pool=$label" --quiet \
    ${capacity[@]+"${capacity[@]}"}
}

delete() {   # POOL, which was created here and has no nodes; it would fill itself later, and cost then
  gcloud container node-pools delete "$1" --cluster="$cluster" --location="$location" --project="$project" --quiet ||
    fail "node pool $1 could not be deleted; delete it before you try again, because it may fill itself later"
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
    zone=${place%%/*} reservation=""
    [ "$place" = "$zone" ] || reservation=${place#*/}
    echo "creating node pool $pool in $zone${reservation:+ from reservation $reservation} ..."
    if create "$pool" "$zone" "$reservation"; then
      created=yes
      break
    fi
    left=$(status_of "$pool") || fail "whether node pool $pool was created is not known; look at it before you try again"
    [ -z "$left" ] || delete "$pool"
  done
  [ -n "$created" ] || fail "node pool $pool could not be created in any zone{{ ' or from any reservation' if reservations }}; the messages of gcloud are above"
  echo "ok: node pool $pool was created"
done
