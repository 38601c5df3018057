"""A small cloud on this machine for tests: hosts as namespaces that share no disk, and a provisioner that creates and deletes them."""
