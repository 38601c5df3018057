"""Eight CPU devices for every test that imports jax, so that sharding is tested wherever the tests run; and programs that compile soon.

Most of the suite's time would go into compiling small programs: the compiler does not optimize here, which changes neither the operations
nor their order, and what one process has compiled the others find.
"""

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Generator, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent
KEEP = "PODWRIGHT_TESTS_CACHE"
"""names the folder of compiled programs that runs of the tests share; empty for a folder that the run deletes"""
LARGEST_BYTES = 4 * 2**30


def compiled_programs() -> Path:
    """A folder for JAX's compiled programs, kept for the next run of the tests on this kind of processor."""
    kept = os.environ.get(KEEP, os.environ.get("XDG_CACHE_HOME", "~/.cache") + "/podwright-tests")
    if not kept:
        return temporary_folder()
    cpu = Path("/proc/cpuinfo")
    features = re.search(r"^(flags|Features).*$", cpu.read_text(), re.M) if cpu.exists() else None
    kind = hashlib.sha256(f"{version('jaxlib')} {features and features[0]} {platform.machine()}".encode())
    folder = Path(kept).expanduser() / kind.hexdigest()[:12]
    with contextlib.suppress(OSError):
        drop_unreadable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="podwright-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def drop_unreadable(folder: Path) -> None:
    """Deletes entries that a killed process has half written, which JAX never replaces, and all of them if they have become too many."""
    checked = folder / "checked"
    since = checked.stat().st_mtime if checked.exists() else 0.0
    entries = {path: path.stat() for path in folder.glob("*-cache")}
    if sum(entry.st_size for entry in entries.values()) > LARGEST_BYTES:
        shutil.rmtree(folder)
        return
    begin = time.time()
    for path, entry in entries.items():
        # Another run may be writing an entry of the last minute; the next run looks at it.
        if since - 60 <= entry.st_mtime < begin - 60:
            try:
                zlib.decompress(path.read_bytes())
            except zlib.error:
                path.unlink()
    if folder.exists():
        checked.touch()


os.environ["JAX_PLATFORMS"] = "cpu"
_QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {_QUICK}"
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # the first process of a session; its workers inherit it
    programs = compiled_programs()
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(programs)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        # Each process that a test starts would compile all modules again.
        os.environ["PYTHONPYCACHEPREFIX"] = str(programs / "bytecode")
if "PODWRIGHT_CACHE" not in os.environ:  # nothing of a test is kept in a home
    os.environ["PODWRIGHT_CACHE"] = str(temporary_folder())
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

# file -> {tier: seconds that its tests take}, measured by `python -m tests.tiers`
SECONDS: dict[str, dict[str, float]] = json.loads((ROOT / "tests/seconds.json").read_text())

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
    "tests/e2e/test_late_requests.py",
    "tests/e2e/test_gke_remedies.py",
    "tests/e2e/test_gke_secrets.py",
    "tests/e2e/test_gke_training.py",
    "tests/e2e/test_gke_troubleshooting.py",
    "tests/e2e/test_gke_unseen.py",
    "tests/e2e/test_gke_verbs.py",
    "tests/e2e/test_hostile_scripts.py",
    "lab/tests/test_simulated_gcloud.py",
    "lab/tests/test_simulated_kube.py",
    "tests/e2e/test_slurm.py",
    "tests/e2e/test_slurm_dead_node.py",
    "tests/e2e/test_slurm_training.py",
    "tests/e2e/test_ssh.py",
    "tests/e2e/test_tpu_expiry.py",
    "tests/e2e/test_tpu_faults.py",
    "tests/e2e/test_tpu_replies.py",
    "tests/e2e/test_tpu_secrets.py",
    "tests/e2e/test_tpu_training.py",
    "tests/e2e/test_tpu_vm.py",
    "tests/e2e/test_tpu_vm_verbs.py",
    "lab/tests/test_kube_controllers_pods.py",
    "tests/unit/report/test_browser.py",
    "tests/unit/sandbox/test_evaluation.py",
)
# Their long tests need a Python with JAX's CUDA plugin: a part of its own, which is run by hand where there is one (CONTRIBUTING.md).
FOR_CUDA_PYTHON = ("tests/unit/kernels/test_gpu_programs.py", "tests/unit/kernels/test_kda_tokamax.py")
SKIPS_FAIL = "PODWRIGHT_SKIPS_FAIL"
TIERS = ("long", "not long")
FILES = pytest.StashKey[set[str] | None]()
TIER = pytest.StashKey[str]()


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        metavar="N/OF",
        help="only the test files of this part, of so many that take equally long; or cuda, of the long tests: those that need JAX's CUDA plugin",
    )


def seconds(file: str, tier: str) -> float:
    return SECONDS.get(file, {}).get(tier, 1.0)


def part(files: Iterable[str], number: int, of: int, tier: str) -> set[str]:
    """The files of one part: the longest file goes to the part that has least so far, and so on."""
    load, chosen = [0.0] * of, set()
    for file in sorted(files, key=lambda file: (-seconds(file, tier), file)):
        least = load.index(min(load))
        load[least] += seconds(file, tier)
        if least == number - 1:
            chosen.add(file)
    return chosen


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FILES] = None
    tier = "long" if config.option.markexpr == "long" else "test"
    config.stash[TIER] = tier
    if config.option.part == "cuda" and tier == "long":
        config.stash[FILES] = set(FOR_CUDA_PYTHON)
    elif config.option.part:
        match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", config.option.part)
        if not match or int(match[1]) > int(match[2]):
            raise pytest.UsageError(f"--part={config.option.part} is no part: write it as 2/4")
        number, of = int(match[1]), int(match[2])
        listed = [
            str(path.relative_to(ROOT)) for folder in ("tests", "lab") for path in (ROOT / folder).rglob("test_*.py")
        ]
        apart = FOR_CUDA_PYTHON if tier == "long" else ()
        files = [file for file in listed if has_tests(file, tier) and file not in apart]
        config.stash[FILES] = part(files, number, of, tier)


def has_tests(file: str, tier: str) -> bool:
    """Whether a file may have tests of this tier, by its text: importing it takes longer."""
    text = (ROOT / file).read_text()
    if tier == "long":
        return "mark.long" in text or "mark.brief" in text
    return not re.search(r"^pytestmark = .*mark\.long", text, re.M)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    file = collection_path.relative_to(ROOT).as_posix()
    chosen = config.stash[FILES]
    if chosen is not None and file not in chosen:
        return True
    return None if config.option.markexpr not in TIERS or has_tests(file, config.stash[TIER]) else True


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files are begun first, so that no worker is left alone with one of them at the end.

    Of a test that is marked `brief(n)`, the cases after the first n are long; those that are marked so anyway do not count.
    """
    tier, cases = config.stash[TIER], Counter[str]()
    for item in items:
        brief = item.get_closest_marker("brief")
        if brief and not item.get_closest_marker("long"):
            name = item.nodeid.partition("[")[0]
            cases[name] += 1
            if cases[name] > brief.args[0]:
                item.add_marker("long")
    items.sort(key=lambda item: -seconds(item.nodeid.partition("::")[0], tier))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Of the tests that are marked `crowded`, one at a time runs on a machine, its fixtures included: a lock beside the compiled programs."""
    if item.get_closest_marker("crowded") is None:
        return (yield)
    with open(Path(os.environ["JAX_COMPILATION_CACHE_DIR"], "crowded"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            return (yield)
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The files that took longest."""
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                total[report.nodeid.partition("::")[0]] += report.duration
    if terminalreporter.config.option.durations:
        terminalreporter.section("slowest files, in seconds")
        for name, taken in total.most_common(terminalreporter.config.option.durations):
            terminalreporter.write_line(f"{taken:6.1f} {name}")
