"""Programs that targets need on the machine where `podwright` is typed, and what to do where they are missing."""

from __future__ import annotations

GCLOUD = {"gcloud": "install the Google Cloud CLI: https://cloud.google.com/sdk/docs/install"}
KUBECTL = {"kubectl": "type gcloud components install kubectl"}
SSH = {"ssh": "install the OpenSSH client"}
SSH_KEYGEN = {"ssh-keygen": "install the OpenSSH client"}
SLURM = dict.fromkeys(("sbatch", "squeue", "scancel"), "type podwright on a login node of the cluster")
