"""A launch script that is ours, with every construction that public ones have, and changed copies of it."""

SCRIPT = r"""#!/bin/bash

# --- Environment Setup: it's a comment with a quote, "two", and a ${VARIABLE} ---
UV_VENV_PATH="${HOME}/.local/bin/venv"
UV_PYTHON_VERSION="3.11"

# Activate the virtual environment
source "${UV_VENV_PATH}/bin/activate"

# Check if xpk is installed in the venv
if ! pip show xpk &> /dev/null; then
    echo "xpk not found in the virtual environment. Please install it by running:"
    echo "pip install xpk==1.8.0"
    exit 1
fi

set -e
set -o pipefail

# --- Environment Variables ---
export PROJECT_ID=""
export CLUSTER_NAME=""
export ZONE=""
export BASE_OUTPUT_DIR="" # for example, gs://<your_gcs_bucket>
export ARTIFACT_DIR="${BASE_OUTPUT_DIR}"
export WORKLOAD_IMAGE=""  # must be pushed: docker push <this>
export WORKLOAD_NAME="$(printf "%.26s" "${USER//_/-}-toy-1b-4096-fsdp-in-a-long-name")-$(date +%Y%m%d-%H%M)"
export DATASET_DIR=${BASE_OUTPUT_DIR}/data_v1
export MOUNTED="/data/mounted"

# XLA Flags — with a character that is not ASCII
XLA_FLAGS=" \
  --xla_tpu_scoped_vmem_limit_kib=65536 \
  --xla_tpu_rwb_fusion=false \
  --xla_enable_async_all_gather=true "

MAXTEXT_ARGS="\
model_name=toy-1b \
per_device_batch_size=8.0 \
dataset_type='grain' \
grain_train_files=${MOUNTED}/c4/3.0.1/*.arrayrecord \
weight_quantization_calibration_method='fixed,-224,224' \
act_quantization_calibration_method=fixed,-224,224 \
prompt='a singer in dim lighting. She smiles.' \
jax_cache_dir=${DATASET_DIR}/jax_cache/ \
steps=30 \
base_output_directory=<your-gcs-bucket-path> \
run_name=${WORKLOAD_NAME} \
output_dir=${BASE_OUTPUT_DIR}"



echo "=== Creating XPK Workload: $WORKLOAD_NAME ==="
xpk workload create \
  --cluster=$CLUSTER_NAME \
  --project=$PROJECT_ID \
  --zone=$ZONE \
  --priority=very-high \
  --max-restarts=0 \
  --device-type=tpu7x-4x4x4 \
  --num-slices=1 \
  --docker-image="${WORKLOAD_IMAGE}" \
  --enable-debug-logs \
   \
   \
  --workload="${WORKLOAD_NAME}" \
   \
  --command="set -e && set -o pipefail && export ENABLE_PATHWAYS_PERSISTENCE='1' && \
export LIBTPU_INIT_ARGS='${XLA_FLAGS}' && \
export ARTIFACT_DIR='${ARTIFACT_DIR}' && \
    export JAX_PLATFORMS=tpu,cpu MAXTEXT_PKG_DIR=/deps/src && \
 \
 \
cd /deps && pip install git+https://example.com/kernels.git@4936e75 --no-deps &&  \
echo 'Starting training ...' && \
HF_HUB_CACHE=/dev/shm python3 -m MaxText.train MaxText/configs/base.yml \
  output_dir=${BASE_OUTPUT_DIR} \
  ${MAXTEXT_ARGS} | tee train.log && \
gsutil cp train.log ${ARTIFACT_DIR}/logs/train-\${TPU_WORKER_ID}.log"
  """

VALUES = {
    "PROJECT_ID": "a-project",
    "CLUSTER_NAME": "a-cluster",
    "ZONE": "us-central1-ai1a",
    "BASE_OUTPUT_DIR": "gs://a-bucket/runs",
    "WORKLOAD_IMAGE": "gcr.io/a-project/image:tag",
}

# what is changed -> (text of the script, what stands there instead)
MUTANTS: dict[str, tuple[str, str]] = {
    "single for double quotes": ('export ZONE=""', "export ZONE='$HOME'"),
    "no quotes": ('--docker-image="${WORKLOAD_IMAGE}"', "--docker-image=${WORKLOAD_IMAGE}"),
    "a quote inside a word": ("--zone=$ZONE", "--zone=us'-'\"central1\"-a"),
    "an escaped quote": ("steps=30 \\", "steps=30 tag=\\\"x\\\" \\"),
    "an escaped dollar": ("model_name=toy-1b", "model_name=\\$toy"),
    "an escaped backslash": ("model_name=toy-1b", "model_name=a\\\\b\\c"),
    "dollar quotes": ('export ZONE=""', "export ZONE=$'a\\tb\\'c'"),
    "a continuation with blanks behind it": ("  --zone=$ZONE \\", "  --zone=$ZONE \\  "),
    "a continuation within a word": ("--max-restarts=0", "--max-re\\\nstarts=0"),
    "a continuation in single quotes": ("'a singer in dim lighting. She smiles.'", "'a singer \\\nsmiles'"),
    "a missing continuation": ("  --num-slices=1 \\", "  --num-slices=1"),
    "a comment among continuation lines": ("  --zone=$ZONE \\", "  --zone=$ZONE \\\n# --spot \\"),
    "a comment behind a word": ('export MOUNTED="/data/mounted"', "export MOUNTED=/data/mounted#1 #2"),
    "a comment behind a semicolon": ("set -e\n", "set -e;#x\n"),
    "variables of variables": ("export MOUNTED=", 'INNER="/vol"; OUTER="${INNER}/$INNER-x"; export MOUNTED="$OUTER" OTHER='),
    "a default": ('export ZONE=""', 'export ZONE="${ZONE:-us-${REGION:=east5}-a}"'),
    "an alternative": ("--zone=$ZONE", '--zone="${USER:+set}${NOBODY:+not}"'),
    "a suffix and a prefix": ("--zone=$ZONE", '--zone="${DATASET_DIR##*/}${WORKLOAD_IMAGE%%:*}${USER%%_*}${USER##*_}${USER#a}${USER%r}"'),
    "a replacement": ("${USER//_/-}", "${USER/[a-e]_/X.}${USER/#a/b}${USER/%r/s}"),
    "upper case and a slice": ("--zone=$ZONE", '--zone="${USER^^}${USER:2:3}${USER: -2}${#USER}"'),
    "printf with width": ('printf "%.26s"', 'printf "%-12s|%.3s|%5d%%\\n" x'),
    "date with other letters": ("+%Y%m%d-%H%M", '"+%y.%j %T%%"'),
    "date in UTC": ("date +%Y%m%d-%H%M", "date -u +%F_%R"),
    "backquotes": ("$(date +%Y%m%d-%H%M)", "`date +%Y`-`echo \\`date +%m\\``"),
    "a pipe in a substitution": ("${USER//_/-}", "$(echo $USER | tr '_A-Z' '-a-z' | cut -c1-5)"),
    "a variable that is not set": ("--zone=$ZONE", "--zone=$NOT_SET --x=${ALSO_NOT}y $NEITHER"),
    "an unquoted value with blanks": ("--zone=$ZONE", "--zone=$XLA_FLAGS"),
    "an array": ("echo \"===", 'MORE=(--spot "--env=A=b c" --x=$ZONE)\nMORE+=(last)\necho "==='),
    "an array that is passed": ("  --num-slices=1 \\", '  "${EXTRA[@]}" ${#EXTRA[@]} "${EXTRA[*]}" ${EXTRA[1]} $EXTRA \\'),
    "a here-document": ("echo \"===", "ARGS=$(cat <<EOF\nzone=$ZONE \\$HOME \"it's\"\nEOF\n)\nZONE=$ARGS\necho \"==="),
    "a literal here-document": ("echo \"===", "ZONE=$(cat <<-'EOF'\n\tzone=$ZONE `x` it's\n\tEOF\n)\necho \"==="),
    "a here-document that is read": ("echo \"===", "read -r -d '' ZONE <<EOF || true\n  two\nlines $USER\nEOF\necho \"==="),
    "a here-string": ("echo \"===", "ZONE=$(cat <<< \"x  y\")\necho \"==="),
    "+=": ("echo \"===", 'MAXTEXT_ARGS+=" profiler=xplane"\nXLA_FLAGS+=--more=1\necho "==='),
    "a branch": ("echo \"===", 'if [[ $ZONE == us-* && -n "$USER" ]]; then ZONE=west; elif [ -z "$ZONE" ]; then ZONE=none; else ZONE=x; fi\necho "==='),
    "a case": ("echo \"===", 'case "$USER" in b*|c*) ZONE=1 ;; a_*) ZONE=2 ;; *) ZONE=3 ;; esac\necho "==='),
    "a loop": ("echo \"===", 'for x in a "b c" $USER; do ZONE="$ZONE,$x"; done\necho "==='),
    "a function": ("echo \"===", 'name() { local y="$1"; ZONE="$y-$2-$#"; }\nname "p q" r\necho "==='),
    "a group and a subshell": ("echo \"===", '{ ZONE=inner; }; (ZONE=lost; PROJECT_ID=lost)\necho "==='),
    "a command by eval": ("xpk workload create \\", 'CMD="xpk workload create --zone=\\"$ZONE\\" --x=\'$USER\'"\neval ${CMD}\nexit 0\nxpk workload create \\'),
    "a call by python": ("xpk workload create \\", "python3 ~/xpk/xpk.py workload create \\"),
    "a call by a module": ("xpk workload create \\", "python3 -m xpk.main workload create \\"),
    "a call by uv": ("xpk workload create \\", "echo xpk workload create; sudo() { \"$@\"; }; sudo uv run xpk workload create \\"),
    "values behind blanks": ("--priority=very-high", "--priority very-high --priority=low"),
    "a variable before the call": ("xpk workload create \\", "ZONE=other TELEMETRY_ENABLED=false xpk workload create \\"),
    "a call in a pipe": ("logs/train-\\${TPU_WORKER_ID}.log\"", "x\" 2>&1 | tee out.txt"),
    "a call in a condition": ("xpk workload create \\", "if ! command -v xpk > /dev/null; then exit 1; fi\nxpk workload create \\"),
    "a call behind &&": ("xpk workload create \\", "[ -n \"$USER\" ] && false || xpk workload create \\"),
    "a home": ('export MOUNTED="/data/mounted"', "export MOUNTED=~/data:~ && export ZONE=\"~/x\""),
    "a trap": ("echo \"===", "last() { echo \"$? $LINENO\"; xpk workload delete; }\nend() { rm -f x; last; }\ntrap end EXIT\ntrap 'echo $LINENO' ERR\necho \"==="),
    "a trap that does not run": ("echo \"===", "trap 'xpk workload create --x' TERM\ntrap - EXIT\ntrap -p\necho \"==="),
    "braces": ("--zone=$ZONE", "--zone={}x{a} --y=a{b"),
}  # fmt: skip

# what is changed -> (text of the script, what stands there instead, the words of the refusal; LINE: the line of the change)
REFUSED: dict[str, tuple[str, str, str]] = {
    "a loop without end": ("echo \"===", "while true; do :; done\necho \"===", "LINE: a while loop is not read"),
    "a random suffix": ("$(date +%Y%m%d-%H%M)", "$(head -c 5 /dev/urandom)", "LINE: what head -c 5 /dev/urandom prints"),
    "a question to a program": ("--zone=$ZONE", "--zone=$(gcloud config get-value compute/zone)", "LINE: what gcloud"),
    "a process id": ("--zone=$ZONE", "--zone=$$", r"LINE: \$\$ is known only where the script runs"),
    "arithmetic": ("--num-slices=1", "--num-slices=$((1 + 1))", "LINE: the arithmetic"),
    "names of files": ("--zone=$ZONE", "--zone=*", "LINE: --zone=[*] stands for the files"),
    "braces with alternatives": ("--zone=$ZONE", "--zone={a,b}", "LINE: the braces in --zone={a,b}"),
    "a branch on a file": ('export ZONE=""', "if [ -f /x ]; then export ZONE=a; else export ZONE=b; fi", "LINE: ZONE depends on a program"),
    "an unclosed quote": ("--zone=$ZONE", "--zone='x", "has no closing quote"),
    "words that are split otherwise": ("set -e\n", "IFS=,\n", "IFS changes how words are split"),
    "a value that is required": ("--zone=$ZONE", "--zone=${NOT_SET:?no zone}", "LINE: NOT_SET is not set"),
    "an unset variable under set -u": ("set -o pipefail", "set -u; echo $NOT_SET; X=$NOT_SET", "LINE: NOT_SET is not set"),
    "an unknown function": ("echo \"===", "f( ) [ x ]\necho \"===", "is not expected here"),
    "a background command": ("echo \"===", "sleep 9 &\necho \"===", "a command in the background"),
    "an input that may not be there": ("--zone=$ZONE", "--zone=$ZONE < names", "LINE: whether names can be read is known only"),
    "an element of an array": ("XLA_FLAGS=\"", "XLA_FLAGS[=\"", "LINE: an element of an array at the beginning"),
    "two calls": ("echo \"===", "xpk workload create --x\necho \"===", "calls xpk workload create 2 times, in lines 53, 55"),
    "a call in a trap": ("echo \"===", "trap -- 'xpk workload create --x' EXIT\necho \"===", "LINE: the trap 'xpk workload create --x' calls xpk workload create, which is not read"),
    "a call in a trap, by a variable": ("echo \"===", "trap '$CMD' 0\nCMD='xpk workload create --x'\necho \"===", "LINE: the trap '[$]CMD' calls xpk"),
    "a call in a trap, by functions": ("echo \"===", "trap first exit; first() { second; }; second() { echo $RANDOM; xpk workload create; }\necho \"===", "LINE: the trap first calls xpk"),
    "no call": ("xpk workload create \\", "xpk workload list \\", "does not call xpk workload create"),
}  # fmt: skip


def changed(old: str, new: str) -> str:
    assert SCRIPT.count(old) >= 1, old
    return SCRIPT.replace(old, new, 1)
