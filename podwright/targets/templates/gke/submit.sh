#!/usr/bin/env bash
# {{ submit }}: submits one run of {{ recipe | comment }} and prints how to follow it.
#   bash {{ submit }}          {{ "creates the JobSet of jobset.yaml with kubectl" if not only_xpk else "submits it with xpk: " ~ (only_xpk | comment) ~ " of the recipe is carried out by xpk alone" }}
{% if not only_xpk and xpk_call %}
#   bash {{ submit }} xpk      submits the same run with xpk{{ " " ~ (xpk_version | comment) if xpk_version }}
{% endif %}
# WORKLOAD_NAME=my-run before it names the run; else the name is made of your user name, the model and the time.
set -euo pipefail
{% if not only_xpk %}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
{% endif %}
{% include "gke/settings.sh" %}
way=${1:-{{ "xpk" if only_xpk else "kubectl" }}}

# A name is legal: small letters, digits and -, at most 40. Seconds in it keep two submissions apart.
name=${WORKLOAD_NAME:-}
if [ -z "$name" ]; then
  user=$(id -un | LC_ALL=C tr '[:upper:]' '[:lower:]' | LC_ALL=C tr -c 'a-z0-9\n' '-')
  prefix=$(printf '%.26s' "$user-"{{ model | quoted }} | sed 's/--*/-/g; s/^[^a-z]*//; s/-*$//')
  name=${prefix:-run}-$(date +%y%m%d-%H%M%S)
fi
legal='^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$'
(LC_ALL=C; [[ $name =~ $legal ]]) ||
  fail "$name cannot be the name of a run; write small letters, digits and -, at most 40, beginning with a letter"
existing=$(k get jobset "$name" --ignore-not-found --output=name) || fail "the cluster does not answer; bash setup_training_env.sh says why"
[ -z "$existing" ] || fail "a run $name exists already, and xpk would delete it; set WORKLOAD_NAME to another name"

case $way in
{% if not only_xpk %}
  kubectl)
{% if code %}
    # Code and recipe of the pods; their hash is in its name, so what exists is the same
    existing=$(k get configmap {{ code }} --ignore-not-found --output=name)
    [ -n "$existing" ] || k create -f "$here/configmap.yaml"
{% endif %}
    # create, not apply: the server refuses a second run of the name
    sed "s/\${WORKLOAD_NAME}/$name/g" "$here/jobset.yaml" | k create -f -
    ;;
{% endif %}
{% if xpk_call %}
  xpk)
    requirement={{ ("xpk==" ~ xpk_version if xpk_version else "xpk") | quoted | quoted }}   # quoted for a shell that it is pasted into
    command -v xpk > /dev/null || fail "xpk is not installed; type pip install $requirement, or install that tag from its repository where PyPI has none"
    # The lines are joined by blanks; ${WORKLOAD_NAME} is filled in below, and what else has a $ is for the pod.
    IFS= read -r -d '' command << '{{ delimiter }}' || true
{% for line in command_lines %}
{{ line }}
{% endfor %}
{{ delimiter }}
    command=${command%$'\n'}
    command=${command//$'\n'/ }
    command=${command//\$\{WORKLOAD_NAME\}/$name}
    # node_pool.sh creates a pool in the first zone that has room
    there=$(kubectl --context="$context" get nodes --selector={{ selector | quoted }} --output=jsonpath='{.items[*].metadata.labels.topology\.kubernetes\.io/zone}') ||
      fail "the cluster does not answer; bash setup_training_env.sh says why"
    zone=${there%% *}
    [ -n "$zone" ] || zone={{ zones[0] | quoted }}
    {{ xpk_call }}
    ;;
{% endif %}
  *) fail "$way is no way to submit; the first word is {{ "xpk" if only_xpk else "kubectl" if not xpk_call else "kubectl or xpk" }}" ;;
esac

container={{ container | quoted }}
queue={{ queue | quoted }}
echo
echo "submitted $name; it waits until queue $queue admits it. To follow it:"
echo "  kubectl --context=$context --namespace=$namespace get jobset,pods --selector=jobset.sigs.k8s.io/jobset-name=$name"
echo "  kubectl --context=$context --namespace=$namespace get workloads.kueue.x-k8s.io | grep $name"
echo "  kubectl --context=$context --namespace=$namespace logs --follow --tail=-1 --container=$container --selector=jobset.sigs.k8s.io/jobset-name=$name,jobset.sigs.k8s.io/job-index=0,batch.kubernetes.io/job-completion-index=0"
echo "To remove it: bash cleanup.sh $name"
