"""Stand-ins on this machine for the services that runs need: SLURM, hosts with sshd, a bucket, Google Cloud and Kubernetes.

The tests and the measurements of `bench/` start them. Hosts are namespaces that share no disk; a provisioner creates and deletes them.
"""
