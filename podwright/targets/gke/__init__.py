"""A cluster of GKE with TPUs: what is submitted to it, as data and as scripts."""
