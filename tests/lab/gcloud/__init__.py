"""A simulated Cloud TPU control plane for tests: an executable `gcloud` with state, over hosts of the lab."""
