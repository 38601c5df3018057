"""A launch script that is ours, with every construction that public ones have, and changed copies of it."""

from pathlib import Path

import yaml

CORPUS = Path(__file__).parents[4] / "bench/equivalence"
SCRIPT = (CORPUS / "launch.sh").read_text()

VALUES = {
    "PROJECT_ID": "a-project",
    "CLUSTER_NAME": "a-cluster",
    "ZONE": "us-central1-ai1a",
    "BASE_OUTPUT_DIR": "gs://a-bucket/runs",
    "WORKLOAD_IMAGE": "gcr.io/a-project/image:tag",
}

# what is changed -> (text of the script, what stands there instead)
MUTANTS: dict[str, tuple[str, str]] = {
    what: (old, new) for what, (old, new) in yaml.safe_load((CORPUS / "script_variants.yaml").read_text()).items()
}

# what is changed -> (text of the script, what stands there instead, words of the refusal)
REFUSED: dict[str, tuple[str, str, str]] = {
    "a loop without end": ("echo \"===", "while true; do :; done\necho \"===", "did not end within 10 s"),
    "a random suffix": ("$(date +%Y%m%d-%H%M)", "$(head -c 5 /dev/urandom | base64)", "depends on a file, or on what differs"),
    "a question to a program": ("--zone=$ZONE", "--zone=$(gcloud config get-value compute/zone)", "what gcloud config get-value compute/zone prints is known only where"),
    "a question that Python answers": ("steps=30", "steps=$(python3 steps.py)", "what python3 steps.py prints is known only where the script runs"),
    "a process id": ("--zone=$ZONE", "--zone=$$", "depends on a file, or on what differs"),
    "a branch on a file": ('export ZONE=""', "if [ -f /x ]; then export ZONE=a; else export ZONE=b; fi", "depends on a file"),
    "an unclosed quote": ("--zone=$ZONE", "--zone='x", "does not reach its call of xpk workload create.*ended with exit code"),
    "a value that is required": ("--zone=$ZONE", "--zone=${NOT_SET:?no zone}", "NOT_SET: no zone.; type NOT_SET=VALUE"),
    "an unset variable under set -u": ("set -o pipefail", "set -u; echo $NOT_SET", "NOT_SET: unbound variable.; type NOT_SET=VALUE"),
    "an input that is not there": ("--zone=$ZONE", "--zone=$ZONE < names", "does not reach its call.* names: No such file"),
    "two calls": ("echo \"===", "xpk workload create --x\necho \"===", "calls xpk workload create 2 times; leave one"),
    "a call in a trap": ("echo \"===", "trap 'xpk workload create --x' EXIT\necho \"===", "calls xpk workload create 2 times"),
}  # fmt: skip


def changed(old: str, new: str) -> str:
    assert SCRIPT.count(old) >= 1, old
    return SCRIPT.replace(old, new, 1)
