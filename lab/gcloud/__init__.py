"""A simulated Cloud TPU and GKE control plane for tests: an executable `gcloud` with state, over hosts of the lab.

    with Lab(tmp_path) as lab, Gcloud(lab) as cloud:          # lab.cloud.Lab, lab.gcloud.control.Gcloud
        cloud.capacity("us-east5-b", 0)                       # out of capacity there
        subprocess.run(["gcloud", ...], env=os.environ | cloud.environment)

A queued resource or a node that is created gets real workers: namespaces with an sshd, a host key of their own, a metadata server, and
https://tpu.googleapis.com for requests with the token of the metadata server. The only ssh key is that of the creation metadata, `ssh-keys=USER:KEY`.
A worker has an external address, which this machine reaches, and an internal one, which only workers reach; with `--internal-ips` the external
one is not shown and `gcloud compute start-iap-tunnel WORKER 22 --listen-on-stdin` leads to it.

Records: `resources()` all that exists, husks too; `ledger()` and `chip_hours()` what ran; `calls()` every argv with its status; `hosts(node)`.
A node counts from READY until it is gone: the end of the notice when it is preempted, the end of DELETING when it is deleted.

GKE needs no hosts: `with Folder(tmp_path) as folder, Gcloud(folder) as cloud` (both of lab.gcloud.control) needs no root. Pools have nodes,
which come and go on the API server of lab.kube below the same root while there is one; a pod of it makes a flex-start pool grow from zero.
Their records: `pools()`, `policies()`, `gke_operations()`; the ledger has a row for each node of a pool that a call created.

Knobs, effective at once (methods of `Gcloud`; times are seconds):
  times(creating=, accepted=, provisioning=, suspending=, deleting=)   how long each state takes at least
  times(stockout=, ghost=, operation=)   until a direct node is refused; how long it stays listed; how much later an operation is done
  capacity(zone, chips, after_s=, model=)   chips that a zone has now, or later; of spot, on-demand or reserved only
  quota(region or zone, chips, generation=, preemptible=)   spot and on-demand apart
  preempt(node, notice_s=)   metadata, then the hosts, then SUSPENDED for a queued resource and PREEMPTED for a direct node
  maintain(node, state="RESTARTING" or "REPAIRING", unhealthy_s=, away_s=)   UNHEALTHY_MAINTENANCE, then away, then READY again
  fail_provisioning(message, code=, request=, back=)   FAILED with failedData, or back to waiting
  fault(verb, kind=, status=, text=, calls=, probability=, before=, keep=, delay_s=)   cut, killed, timeout, http, 429, 5xx, any other text
  deny("tpu.nodes.list", "instance:tpu.nodes.delete", "storage.buckets.get", "iap.tunnelInstances.accessViaIAP", ...)
  set(lag={"describe": s, "list": s}, name_taken_s=)   readers that lag behind; a name that stays taken after its resource is gone
  set(account="" or a name, login_expired=, default_credentials=, api_enabled=, properties={"core/project": ...}, buckets={name: fields})
  set(num_hosts={"v6e-8": 2})   hosts of an accelerator type, where it is not four chips a host
  order_endpoints([2, 0, 3, 1], node=)   networkEndpoints in another order than agent-worker-number
  unreachable(node, worker, seconds)   no packet passes; late_key(node, worker, seconds)   ssh refuses the key until then
  image(node, worker, version), busy_device(node, worker, seconds)   instance/attributes/lab-image and lab-device, for stand-ins to read
  clear_guests()   take back the knobs for workers
Knobs of GKE:
  times(pool=, node_apart=, tpu_registration=, pool_retry=, pool_deleting=, scale_down=)   until a pool is RUNNING; between its nodes; from a node's
      readiness to its google.com/tpu; until GKE gives up a pool for which there is no capacity; of STOPPING, at least: it lasts until the pods have
      ended, which are given their own grace periods; until idle flex-start nodes go
  times(operation_pending=)   an operation is PENDING before it is RUNNING; abort(pool, seconds)   ABORTING, then failed
  cluster(name, location, zones=, status=, ...)   with a pool of machines without TPU
  foreign_pool(cluster, name, vms, machine_type, zone, topology, labels=, status=, ...)   of somebody else; also leftovers in ERROR
  reservation(name, zone, vms, in_use=, status="READY", machine_type=, usable=, checked=, maintenance=)   again to change it
  capacity(zone, chips, after_s=, model="spot", "on-demand" or "flex"), quota(region or zone, chips, generation="tpu7x", preemptible=)
  busy(cluster, seconds)   another operation runs; set(concurrent_pools=True)   up to five pools at once
  pool_outcome(kind, pool=, message=, fill_after_s=, count=, nodes=)   what becomes of the next pools, by the keys of `pool_texts.REFUSALS`
  lose_node(pool, index=, notice_s=, back_s=)   as spot nodes are; scale(pool)   nodes of a flex-start pool without a pod
  deny("container.clusters.get", ".list", ".update", "container.operations.get", ".list", "compute.reservations.get", ".list",
      "compute.resourcePolicies.get", ".list", ".create", ".delete", "compute.machineTypes.get")
  fault("container node-pools create", ...), fault("compute resource-policies list", status=403): such a list warns and ends with 0
Where a node is named, * matches any text, so that a knob can be set before the node exists.

Files: surface (commands and flags), session (texts of gcloud), verbs, command (one call, its faults); api (answers of the service), lifecycle
(states), catalog, history, store (the state on disk); pools (states of GKE), pool_texts, container and compute (answers of these services),
container_verbs, compute_verbs, surface_gke, kube_nodes (their nodes on the API server), control_gke (their knobs); control_plane (time and hosts), metadata, guest (inside a host), iap, certificates; control (for tests).
Texts that nobody has shown are marked [?] in the code. A flag or a format that would do nothing here ends the call with status 70 and `lab: ...`.
The real gcloud is held against this one by lab/tests.
"""
