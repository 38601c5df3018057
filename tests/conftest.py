"""Eight CPU devices for every test that imports jax, so that sharding is tested wherever the tests run; and programs that compile soon.

Most of the suite's time would go into compiling small programs: the compiler does not optimize here, which changes neither the operations
nor their order, and what one process has compiled the others find.
"""

import atexit
import os
import shutil
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
_QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {_QUICK}"
if (
    "JAX_COMPILATION_CACHE_DIR" not in os.environ
):  # the first process of a session; its workers and what they start inherit it
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="podwright-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.5"
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
