#!/usr/bin/env bash
# cleanup.sh: removes what the other scripts created, and checks that it is gone.
#   bash cleanup.sh NAME...    the runs of these names; node pools stay
#   bash cleanup.sh --pools    the node pools that node_pool.sh created; refused while a run is on their nodes
# Node pools that node_pool.sh did not create are never deleted.
set -uo pipefail
{% include "gke/settings.sh" %}
pools=({% for pool in pools %}{{ pool }}{{ " " if not loop.last }}{% endfor %})
label={{ label | quoted }}

[ "$#" -gt 0 ] || fail "name a run, or type --pools"
if [ "$1" != --pools ]; then
  for name in "$@"; do
    k delete jobset "$name" --ignore-not-found --wait=true || fail "run $name could not be deleted"
    left=$(k get jobset "$name" --ignore-not-found --output=name) || fail "the cluster does not answer: whether run $name is gone is not known"
    [ -z "$left" ] || fail "run $name is still there"
    echo "ok: run $name is gone"
  done
{% if code %}
  # The code of the pods, once no run has it
  others=$(k get jobset --selector={{ code_label }} --output=name) || fail "the cluster does not answer: whether ConfigMap {{ code }} is needed is not known"
  [ -n "$others" ] || k delete configmap {{ code }} --ignore-not-found || fail "ConfigMap {{ code }} could not be deleted"
{% endif %}
  exit
fi

nodes=$(kubectl --context="$context" get nodes --selector="podwright-pool=$label" --output=jsonpath='{.items[*].metadata.name}') ||
  fail "the cluster does not answer: whether a run is on these nodes is not known"
for node in $nodes; do
  running=$(kubectl --context="$context" get pods --all-namespaces --selector=jobset.sigs.k8s.io/jobset-name --field-selector="spec.nodeName=$node,status.phase=Running" --output=name) ||
    fail "the cluster does not answer: whether a run is on node $node is not known"
  [ -z "$running" ] || fail "a run is on node $node ($running); delete it first with bash cleanup.sh NAME"
done
for pool in "${pools[@]}"; do
  listed=$(gcloud container node-pools list --cluster="$cluster" --location="$location" --project="$project" --filter="name=$pool" --format='value(name)') ||
    fail "the node pools of cluster $cluster cannot be listed"
  if [ -z "$listed" ]; then
    echo "ok: there is no node pool $pool"
    continue
  fi
  owner=$(gcloud container node-pools describe "$pool" --cluster="$cluster" --location="$location" --project="$project" --format='value(config.labels.podwright-pool)') ||
    fail "node pool $pool cannot be described: whether node_pool.sh created it is not known"
  [ "$owner" = "$label" ] || fail "node pool $pool was not created by node_pool.sh (its label is '$owner'); it is left alone"
  {{ pool_calls.delete }} ||
    fail "node pool $pool could not be deleted; it costs while it exists"
done
left=$(gcloud container node-pools list --cluster="$cluster" --location="$location" --project="$project" --filter="config.labels.podwright-pool=$label" --format='value(name)') ||
  fail "the node pools of cluster $cluster cannot be listed: whether they are gone is not known"
[ -z "$left" ] || fail "still there: $left; they cost while they exist"
echo "ok: no node pool of node_pool.sh is left"
