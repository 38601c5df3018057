#!/bin/bash

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
  