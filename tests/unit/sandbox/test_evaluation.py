"""A script in the sandbox: what is recorded of it."""

import shutil
from pathlib import Path

import pytest

from podwright.sandbox import evaluation
from podwright.sandbox.evaluation import Evaluated, evaluate
from podwright.shell import Shell


def missing() -> str:
    """Why this machine has no sandbox; "" where it has one."""
    if shutil.which("unshare") is None:
        return "unshare of util-linux is not installed"
    code, _, errors = Shell().ask(["unshare", "--user", "--map-root-user", "true"])
    return f"no user namespaces: {errors.strip()}" if code else ""


pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def run(folder: Path, text: str, **values: str) -> Evaluated:
    script = folder / "run_recipe.sh"
    script.write_text(text)
    return evaluate(script, values, Shell())


def test_a_recipe_gives_the_arguments_of_one_workload(tmp_path: Path) -> None:
    result = run(tmp_path, RECIPE, PROJECT_ID="my project", BASE_OUTPUT_DIR="gs://bucket/out")
    (call,) = result.workloads()
    assert not result.problem and result.exit_code == 0
    assert call.argv == (
        *(
            "xpk",
            "workload",
            "create",
            "--project=my",
            "project",
            "--workload=first-last-a-tag-of-more-t-20260101-0000",
        ),
        "--command=set -e && export LIBTPU_INIT_ARGS='   --xla_a=1   --xla_b=True ' && "
        "python3 -m maxtext steps=30 quantization='fixed,-224,224' path=gs://bucket/out/*.arrayrecord | "
        "tee train.log && gsutil cp train.log gs://bucket/out/train-${TPU_WORKER_ID}.log",
    )
    assert call.env == {
        "PROJECT_ID": "my project",
        "BASE_OUTPUT_DIR": "gs://bucket/out",
        "WORKLOAD_NAME": "first-last-a-tag-of-more-t-20260101-0000",
    }


RECIPE = r"""#!/bin/bash
set -e; set -o pipefail
UV_VENV_PATH="${HOME}/.local/bin/venv"
source "${UV_VENV_PATH}/bin/activate"
if ! pip show xpk &> /dev/null; then
    echo "pip install xpk==1.4.0"
    exit 1
fi
USER=first_last
export PROJECT_ID=""
export BASE_OUTPUT_DIR="" # for example, gs://<your_gcs_bucket>
export WORKLOAD_NAME="$(printf "%.26s" "${USER//_/-}-a-tag-of-more-than-26-characters")-$(date +%Y%m%d-%H%M)"
XLA_FLAGS=" \
  --xla_a=1 \
  --xla_b=True "
MAXTEXT_ARGS="\
steps=30 \
quantization='fixed,-224,224' \
path=${BASE_OUTPUT_DIR}/*.arrayrecord"

xpk workload create \
  --project=$PROJECT_ID \
  \
  --workload="${WORKLOAD_NAME}" \
  --command="set -e && export LIBTPU_INIT_ARGS='${XLA_FLAGS}' && \
python3 -m maxtext ${MAXTEXT_ARGS} | tee train.log && \
gsutil cp train.log ${BASE_OUTPUT_DIR}/train-\${TPU_WORKER_ID}.log"
  
"""


def test_without_namespaces_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation.shutil, "which", lambda name: None if name == "unshare" else f"/usr/bin/{name}")
    result = run(tmp_path, "xpk version")
    assert not result.sandboxed and result.why_not == "unshare is not installed" and result.exit_code is None
