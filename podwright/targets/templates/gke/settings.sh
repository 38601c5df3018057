# Settings of target {{ target | comment }}. Rendering again writes them anew; scripts that were edited are kept.
project={{ project | quoted }}
cluster={{ cluster | quoted }}
location={{ location | quoted }}   # of the cluster
namespace={{ namespace | quoted }}
context="gke_${project}_${location}_${cluster}"   # of kubectl, as get-credentials names it

fail() { echo "error: $*" >&2; exit 1; }
k() { kubectl --context="$context" --namespace="$namespace" "$@"; }
