"""What targets of Google Cloud share: calls of gcloud, what its refusals mean, and the labels of what is created."""
