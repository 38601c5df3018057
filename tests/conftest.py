"""Eight CPU devices for every test that imports jax, so that sharding is tested wherever the tests run; and programs that compile soon.

Most of the suite's time would go into compiling small programs: the compiler does not optimize here, which changes neither the operations
nor their order, and what one process has compiled the others find.
"""

import atexit
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

os.environ["JAX_PLATFORMS"] = "cpu"
_QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {_QUICK}"
if (
    "JAX_COMPILATION_CACHE_DIR" not in os.environ
):  # the first process of a session; its workers and what they start inherit it
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="podwright-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        # Each process that a test starts would compile all modules again.
        os.environ["PYTHONPYCACHEPREFIX"] = os.environ["JAX_COMPILATION_CACHE_DIR"] + "/bytecode"
if "PODWRIGHT_CACHE" not in os.environ:  # nothing of a test is kept in a home
    os.environ["PODWRIGHT_CACHE"] = os.environ["JAX_COMPILATION_CACHE_DIR"] + "/podwright"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

# Begun first, so that no worker is left alone with one of them at the end; files that mostly wait and files that compute take turns.
SLOWEST = (
    "tests/e2e/test_tpu_vm.py",
    "tests/unit/train/test_pretrain.py",
    "tests/e2e/test_chaos_gke.py",
    "tests/e2e/test_tpu_faults.py",
    "tests/e2e/test_ssh.py",
    "tests/e2e/test_chaos.py",
    "tests/e2e/test_slurm.py",
    "tests/e2e/test_several_processes.py",
    "tests/e2e/test_gke_pools.py",
    "tests/e2e/test_gke.py",
    "tests/unit/train/test_watchdog.py",
    "tests/e2e/test_pretrain_run.py",
    "tests/e2e/test_allocations.py",
    "tests/unit/train/test_program.py",
    "tests/e2e/test_gke_pool_runs.py",
    "tests/e2e/test_gke_journals.py",
    "tests/e2e/test_gke_maxtext.py",
    "tests/e2e/test_storage.py",
    "tests/unit/train/test_lora.py",
    "tests/unit/train/test_bucket_checkpoint.py",
    "tests/unit/plan/test_verdict.py",
    "tests/e2e/test_slurm_training.py",
    "tests/unit/plan/test_compile.py",
    "tests/unit/train/test_muon.py",
)

# They need SLURM, an sshd, networks of hosts, user namespaces, kubectl or a browser. `.ci/run` sets SKIPS_FAIL where it has installed these: a skip is then a fault.
INSTALLED_FOR = (
    "tests/e2e/test_allocations.py",
    "tests/e2e/test_chaos.py",
    "tests/e2e/test_chaos_gke.py",
    "tests/e2e/test_gke.py",
    "tests/e2e/test_gke_almodel.py",
    "tests/e2e/test_gke_collected_texts.py",
    "tests/e2e/test_gke_deepseek.py",
    "tests/e2e/test_gke_dry_run.py",
    "tests/e2e/test_gke_endings.py",
    "tests/e2e/test_gke_interventions.py",
    "tests/e2e/test_gke_journals.py",
    "tests/e2e/test_gke_maxtext.py",
    "tests/e2e/test_gke_pool_runs.py",
    "tests/e2e/test_gke_pools.py",
    "tests/e2e/test_gke_remedies.py",
    "tests/e2e/test_gke_secrets.py",
    "tests/e2e/test_gke_training.py",
    "tests/e2e/test_gke_troubleshooting.py",
    "tests/e2e/test_gke_unseen.py",
    "tests/e2e/test_gke_verbs.py",
    "tests/e2e/test_gke_xpk.py",
    "tests/e2e/test_hostile_scripts.py",
    "tests/e2e/test_simulated_gcloud.py",
    "tests/e2e/test_simulated_kube.py",
    "tests/e2e/test_slurm.py",
    "tests/e2e/test_slurm_training.py",
    "tests/e2e/test_ssh.py",
    "tests/e2e/test_tpu_expiry.py",
    "tests/e2e/test_tpu_faults.py",
    "tests/e2e/test_tpu_replies.py",
    "tests/e2e/test_tpu_secrets.py",
    "tests/e2e/test_tpu_training.py",
    "tests/e2e/test_tpu_vm.py",
    "tests/e2e/test_tpu_vm_verbs.py",
    "tests/unit/lab/test_kube_controllers_pods.py",
    "tests/unit/report/test_browser.py",
    "tests/unit/sandbox/test_evaluation.py",
)
SKIPS_FAIL = "PODWRIGHT_SKIPS_FAIL"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and os.environ.get(SKIPS_FAIL) and item.nodeid.partition("::")[0] in INSTALLED_FOR:
        report.outcome = "failed"
        report.longrepr = (
            f"skipped where {SKIPS_FAIL} is set, which promises that nothing it needs is missing: {call.excinfo}"
        )
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The files that took longest, for `SLOWEST`."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if terminalreporter.config.option.durations:
        terminalreporter.section("slowest files, in seconds")
        for name, total in seconds.most_common(terminalreporter.config.option.durations):
            terminalreporter.write_line(f"{total:6.1f} {name}")
