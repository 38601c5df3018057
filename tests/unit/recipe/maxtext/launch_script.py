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
