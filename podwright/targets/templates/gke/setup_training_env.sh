#!/usr/bin/env bash
# setup_training_env.sh: checks everything that {{ recipe | comment }} needs before it is submitted,
# and builds the image if it is missing. It creates nothing else, and may run as often as you like.
#   bash setup_training_env.sh
# Each missing thing is one line; the exit code is 1 if there is any.
set -uo pipefail
{% include "gke/settings.sh" %}
zones=({% for zone in zones %}{{ zone | quoted }}{{ " " if not loop.last }}{% endfor %})
machine_type={{ machine_type | quoted }}
queue={{ queue | quoted }}
priority={{ priority | quoted }}
accelerator={{ accelerator | quoted }}
topology={{ topology | quoted }}
nodes={{ nodes }}   # {{ num_slices }} x {{ nodes_per_slice }} hosts of a slice
image={{ image | quoted }}

missing=0
lacks() { echo "missing: $*" >&2; missing=1; }
has() { echo "ok: $*"; }
# needs MESSAGE COMMAND...: MESSAGE is missing if COMMAND fails; what it prints is shown only where it says something else
needs() {
  local message=$1 error
  shift
  error=$("$@" 2>&1 > /dev/null) && return 0
  case $error in
    "" | *NotFound* | *"not found"* | *"have a resource type"*) lacks "$message" ;;
    *) lacks "$message, or it cannot be seen: ${error##*$'\n'}" ;;
  esac
  return 1
}

# 1. Tools
for tool in gcloud kubectl gke-gcloud-auth-plugin; do
  command -v "$tool" > /dev/null || fail "$tool is not installed"
done
{% if xpk_version %}
xpk_version={{ xpk_version | quoted }}   # submitting by xpk is optional; another version makes pods of another shape
if command -v xpk > /dev/null; then
  installed=$(xpk version 2>/dev/null | grep -Eo '[0-9]+\.[0-9]+\.[0-9]+' | tail -n 1)
  if [ "$installed" = "$xpk_version" ]; then has "xpk $xpk_version"; else
    echo "note: xpk ${installed:-of unknown version} is installed and the recipe says $xpk_version; jobset.yaml has the shape of $xpk_version"
  fi
fi
{% endif %}
[ -n "$(gcloud auth list --filter=status:ACTIVE --format='value(account)')" ] || fail "no account is active; type gcloud auth login"

# 2. Cluster, and its entry in kubectl's configuration
status=$(gcloud container clusters describe "$cluster" --location="$location" --project="$project" --format='value(status)') ||
  fail "cluster $cluster in $location cannot be described"
[ "$status" = RUNNING ] || fail "cluster $cluster is $status"
gcloud container clusters get-credentials "$cluster" --location="$location" --project="$project" --quiet ||
  fail "kubectl has no access to cluster $cluster"
has "cluster $cluster"

# 3. Machines: the zones have the type, and the cluster has the nodes
for zone in "${zones[@]}"; do
  needs "zone $zone has no machine type $machine_type" \
    gcloud compute machine-types describe "$machine_type" --zone="$zone" --project="$project" --format='value(name)' &&
    has "$machine_type in $zone"
done
{% if reservations %}
# A reservation is of one zone: node pools in another zone cannot use it.
reservations=({% for each in reservations %}{{ each | quoted }}{{ " " if not loop.last }}{% endfor %})
for reservation in "${reservations[@]}"; do
  owner=$project
  name=${reservation%%/reservation[BS]*}   # without its blocks
  case $name in projects/*) owner=${name#projects/} owner=${owner%%/*} name=${name##*/} ;; esac
  if ! places=$(gcloud compute reservations list --project="$owner" --filter="name=$name" --format='value(zone.basename())'); then
    echo "note: reservations of project $owner cannot be listed: the zone of $name was not looked at"
    continue
  fi
  usable=""
  for zone in $places; do
    case " ${zones[*]} " in *" $zone "*) usable=$zone ;; esac
  done
  if [ -n "$usable" ]; then has "reservation $name in $usable"
  elif [ -z "$places" ]; then lacks "project $owner has no reservation $name"
  else lacks "reservation $name is in ${places//$'\n'/ }, and zones of the target has ${zones[*]} alone; node pools there cannot use it"; fi
done
{% endif %}
{% if policy %}
policy={{ policy | quoted }}
region={{ region | quoted }}
needs "workload policy $policy; node_pool.sh creates it" \
  gcloud compute resource-policies describe "$policy" --region="$region" --project="$project" --format='value(name)' &&
  has "workload policy $policy"
{% endif %}
{% if provisioning == "flex-start" %}
echo "note: $nodes nodes with $accelerator $topology come when the pods of a run ask for them"
pools=({% for pool in pools %}{{ pool }}{{ " " if not loop.last }}{% endfor %})
for pool in "${pools[@]}"; do
  needs "node pool $pool; node_pool.sh creates it" \
    gcloud container node-pools describe "$pool" --cluster="$cluster" --location="$location" --project="$project" --format='value(name)' &&
    has "node pool $pool"
done
{% else %}
selector={{ selector | quoted }}
listed=$(k get nodes --selector="$selector" --output=name) || fail "the nodes of cluster $cluster cannot be listed"
ready=$(grep -c . <<< "$listed")
if [ "$ready" -ge "$nodes" ]; then has "$ready nodes with $topology"; else
  lacks "$ready of $nodes nodes with $accelerator $topology{% if policy %} and policy $policy{% endif %}; node_pool.sh creates node pools"
fi
{% endif %}

# 4. Namespace and queue: JobSet and Kueue are installed, the queue and the priority exist
{% if namespace != "default" %}
needs "the cluster has no namespace $namespace; type kubectl create namespace $namespace --context=$context" k get namespace "$namespace" --output=name
{% endif %}
needs "JobSet is not installed in the cluster" k get crd jobsets.jobset.x-k8s.io --output=name
target={{ target | quoted }}
needs "namespace $namespace has no queue $queue of Kueue; podwright target check $target names the queues there are" \
  k get localqueues.kueue.x-k8s.io "$queue" --output=name
needs "the cluster has no PriorityClass $priority: a run with it is never admitted, without a message; {% if priority.startswith("system-") %}set priority of the target to one of: kubectl get priorityclasses{% else %}type kubectl create priorityclass $priority --value=500{% endif %} --context=$context" \
  k get priorityclass "$priority" --output=name
{% if xpk_call %}
# Runs by kubectl do not need what xpk looks up: how many hosts the cluster has of a slice, by its devices
config=$cluster-resources-configmap
if listed=$(kubectl --context="$context" --namespace=default get configmap "$config" --ignore-not-found --output=jsonpath='{.data}') && [ -n "$listed" ]; then
  case $listed in
    *'"{{ counted }}":'*) has "{{ counted }} in ConfigMap $config" ;;
    *) echo "note: ConfigMap $config has no {{ counted }}: xpk would refuse it (Workload scheduling validation failed); type kubectl patch configmap $config --context=$context --namespace=default --type=merge --patch='{\"data\":{\"{{ counted }}\":\"$nodes\"}}'" ;;
  esac
fi
{% endif %}

{% if bucket %}
# 5. Bucket
bucket={{ bucket | quoted }}
needs "bucket $bucket cannot be described" \
  gcloud storage buckets describe "$bucket" --project="$project" --format='value(name)' &&
  has "$bucket"

{% endif %}
# {{ 6 if bucket else 5 }}. Image
# 0: it exists. 1: its registry has no such image. 2: that is not known, and error says why.
error=""
image_exists() {
  case $image in
    *-docker.pkg.dev/*) error=$(gcloud artifacts docker images describe "$image" --format='value(image_summary.digest)' 2>&1 > /dev/null) ;;
    *gcr.io/*) error=$(gcloud container images describe "$image" --format='value(image_summary.digest)' 2>&1 > /dev/null) ;;
    *) error=$(docker manifest inspect "$image" 2>&1 > /dev/null) ;;
  esac && return 0
  grep -Eiq 'denied|unauthorized|forbidden' <<< "$error" && return 2
  grep -Eiq 'image not found|not_found|is not found or is not a valid name|no such manifest|manifest unknown|name unknown' <<< "$error" && return 1
  return 2
}
image_exists
exists=$?
reason=$(grep -m 1 ERROR <<< "$error" || head -n 1 <<< "$error")
{% if builds %}
# It is built of MaxText at a version, with these versions of jax and libtpu ("": what MaxText takes by itself).
maxtext_version={{ maxtext | quoted }}
jax_version={{ jax | quoted }}
libtpu_version={{ libtpu | quoted }}
maxtext_url=${MAXTEXT_URL:-https://github.com/AI-Hypercomputer/maxtext.git}   # of a fork: set it before you start this script
build_image() (
  command -v docker > /dev/null || fail "docker is not installed, and image $image has to be built"
  [ -n "$maxtext_version" ] || fail "image $image does not exist, and no version of MaxText is known; type podwright target show TARGET, and set maxtext there"
  checkout=$(mktemp -d) || fail "no temporary folder could be created for the source of MaxText"
  trap 'rm -rf "$checkout"' EXIT
  git clone --quiet "$maxtext_url" "$checkout" || fail "$maxtext_url could not be cloned"
  cd "$checkout" || fail "$checkout cannot be entered"
  git checkout --quiet "$maxtext_version" || fail "$maxtext_url has no version $maxtext_version"
  build=$(git ls-files '*docker_build_dependency_image.sh' | sed -n 1p) || fail "the files of MaxText $maxtext_version cannot be listed"
  runner=$(git ls-files '*maxtext_runner.Dockerfile' | sed -n 1p) || fail "the files of MaxText $maxtext_version cannot be listed"
  [ -n "$build" ] || fail "MaxText $maxtext_version has no docker_build_dependency_image.sh"
  [ -n "$runner" ] || fail "MaxText $maxtext_version has no maxtext_runner.Dockerfile"
  bash "$build" MODE=nightly ${jax_version:+"JAX_VERSION=$jax_version"} ${libtpu_version:+"LIBTPU_VERSION=$libtpu_version"} ||
    fail "$build of MaxText $maxtext_version failed: the image of its dependencies was not built"
  docker build --no-cache --build-arg BASEIMAGE=maxtext_base_image --build-arg PACKAGE_DIR=src --file="$runner" --tag="$image" . ||
    fail "docker build failed: image $image was not built"
  docker push "$image" || fail "docker push failed: image $image was built here, and its registry does not have it"
)
case $exists in
  0) has "image $image" ;;
  1) if build_image; then has "image $image was built"; else lacks "image $image could not be built"; fi ;;
  *) fail "whether image $image exists is not known, and it is not built over one that may: ${reason:-its registry gave no reason}" ;;
esac
{% else %}
if [ "$exists" = 0 ]; then has "image $image"; else
  echo "note: image $image cannot be described from here, which the nodes may still pull${reason:+: $reason}"
fi
{% endif %}

[ "$missing" = 0 ] || exit 1
echo "everything that was looked at is there; next: bash {{ submit }}"
