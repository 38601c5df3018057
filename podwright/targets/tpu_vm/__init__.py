"""Cloud TPU VMs: slices that are created for a run with gcloud, used over ssh and deleted at its end."""
