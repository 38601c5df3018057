"""Predicted against published step times: replicas of published runs (plan_models.py) through the TPU compiler, no TPU needed.

python bench/plan_roofline.py --dumps DIR [--rows NAME ...] [--out bench/results/plan_roofline.json]

Each row is compiled for its topology up to the buffer assignment and stopped before code generation, which tells nothing more. DIR
keeps the dumps, so a second call only predicts. Needs libtpu; one row at a time, about ten seconds of two free cores for v6e and
some minutes for tpu7x.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from stamp import stamp

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from plan_models import ROWS, Row  # noqa: E402

from podwright.accelerators import TPUS  # noqa: E402
from podwright.plan.compiled import hlo, roofline  # noqa: E402

WRITTEN, REFUSED = "*memory-usage-report.txt", "*oom_intermediate_module.txt"
LIMIT_S = 3600


def dump(name: str, folder: Path) -> Path | None:
    """The text of the row's compiled program; None when the compiler says that it does not fit."""
    if not list(folder.glob(WRITTEN)):
        folder.mkdir(parents=True, exist_ok=True)
        _compile(name, folder)
    return next(iter(folder.glob("*after_optimizations.txt")), None)


WITHOUT_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
}


def _compile(name: str, folder: Path) -> None:
    flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=jit_step"
    env = {**os.environ, **WITHOUT_TPU, "XLA_FLAGS": flags}
    argv = [sys.executable, str(HERE / "plan_models.py"), name]
    with (folder / "log").open("w") as log:
        child = subprocess.Popen(argv, env=env, stderr=log, stdout=log, start_new_session=True)
        end = time.monotonic() + LIMIT_S
        while child.poll() is None and time.monotonic() < end:
            if list(folder.glob(WRITTEN)) or list(folder.glob(REFUSED)):
                time.sleep(1.0)  # the last file may still be being written
                break
            time.sleep(0.2)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def compare(name: str, row: Row, folder: Path) -> dict:
    path = dump(name, folder)
    if path is None:
        return {
            "row": name,
            "use": row.use,
            "published_s": row.published_s,
            "predicted_s": None,
            "why": (folder / "log").read_text()[-500:],
        }
    accelerator = next(a for a in TPUS if a.name == row.accelerator)
    cost = roofline.cost(hlo.read(path), accelerator, topology=row.topology)
    tokens = row.per_device_batch_size * row.sequence
    return {
        "row": name,
        "use": row.use,
        "published_s": row.published_s,
        "predicted_s": round(cost.predicted_s, 3),
        "ratio": round(cost.predicted_s / row.published_s, 3),
        "bound": cost.bound,
        "teraflops": round(cost.flops / 1e12),
        "teraflops_6nd": round(6 * row.model.num_weights * tokens / 1e12),
        "hbm_terabytes": round(cost.hbm_bytes / 1e12, 2),
        "host_gigabytes": round(cost.host_bytes / 1e9),
        "sent_gigabytes": round(sum(c[2] for c in cost.collectives) / 1e9),
        "limits_s": {k: round(v, 3) for k, v in cost.limits.items() if v},
        "notes": cost.notes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dumps", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="NAME")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results = []
    for name in args.rows:
        results.append(compare(name, ROWS[name], args.dumps.resolve() / name.replace(" ", "_")))
        r = results[-1]
        text = (
            f"{r['predicted_s']:8.3f} / {r['published_s']:7.3f} = {r['ratio']:.3f}"
            if r["predicted_s"]
            else "no program"
        )
        print(f"{name:26s} {r['use']:12s} {text}", flush=True)
    efficiencies = {name: vars(e) for name, e in roofline.EFFICIENCIES.items()}
    result = {**stamp(__file__), "efficiencies": efficiencies, "rows": results}
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
