#!/bin/bash
# What a container runs: it copies code, changes the directory and starts MaxText there.
set -e
export LIBTPU_INIT_ARGS="--xla_tpu_scoped_vmem_limit_kib=65536 --xla_enable_async_all_gather=true"
export JAX_PLATFORMS=tpu,cpu
CODE=/app/code
gsutil -m cp -r gs://a-bucket/fork ${CODE}
cp ${CODE}/my_model.yml ${CODE}/src/MaxText/configs/models/
cd $CODE
RUN=fork-$(date +%Y%m%d)
python3 -m MaxText.train src/MaxText/configs/base.yml \
  model_name=my_model run_name=$RUN \
  base_output_directory=gs://a-bucket/out \
  ici_fsdp_parallelism=16 ici_tensor_parallelism=4 steps=10
