"""A simulated Kubernetes cluster for tests: an API server with state, which the real `kubectl` talks to.

    with Kube(tmp_path, controllers=True) as kube:            # lab.kube.control.Kube
        kube.call("create", "-f", "-", text=manifest)         # the real kubectl, with this cluster's context
        subprocess.run(["kubectl", ...], env=os.environ | kube.environment)

It has the resources of `discovery.ROWS` (pods, nodes, jobs, JobSets, Kueue's, ...) with versions, conflicts, selectors, pages, watches, owners,
deletion with its propagations and grace, patches, the status apart, logs, exec, `auth can-i`, and checks of names, labels, sizes and fields.
Without controllers nothing happens to objects but what clients do; with them (`controllers/`) pods of JobSets run as processes of this machine.
The context is named as `gcloud container clusters get-credentials` names it; project, location and cluster are arguments of `Kube`.

Acting past all faults: `create` (with its status), `get`, `objects`, `patch`, `patch_status`, `delete`, `api`; over FOLDER/control.sock, where the
simulated cloud adds and removes nodes too (`control_socket.call_api`). Records: `requests()`, every call of a client with its verb, resource and status.

Faults (`Kube.fault(kind, verb=, resource=, name=, skip=, calls=, seconds=, ...)`); verbs as RBAC has them: get list watch create update patch delete;
`kubectl logs` is get of "pods/log", `kubectl exec` is create of "pods/exec". Without calls= and seconds= a fault stays until `clear_faults()`.
  fault("http", status=429, retry_after_s=2)   429, 500, 503, ... with text= and reason=; kubectl itself waits and tries again where there is a retry_after_s
  fault("forbidden", verb="create", resource="pods/exec")   403 as GKE writes it; `kubectl auth can-i` says no
  fault("slow", delay_s=3), fault("hang"), fault("reset")   late, never, connection broken before anything was done
  fault("lost", verb="create")   done, and the connection broken before the answer
  fault("gone", verb="watch")   a watch begins with 410
  fault("cut", resource="pods/log", lines=3 or after_s=1, clean=False)   a log, a watch or an exec breaks off; clean=True ends it as if that were all
  fault("cut", resource="pods/log", bytes=70), fault("cut", ..., lines=3, clean=True, text="rpc error: ...")   within a line; ending with a text of the node
  fault("repeat", resource="pods/log", back_s=2)   lines from before --since-time (which kubectl cuts to whole seconds by itself) come again
  unreachable(seconds)   connections are refused, and those that are there break
  expire_history()   running watches get 410, and so do pages of older lists

With `controllers=True` a JobSet becomes Jobs and pods, Kueue admits it, the scheduler places its pods on nodes (`samples.pool`, or those that the
simulated gcloud creates), and each container is a process of this machine: as root, with a file system of its own for its volumes, in a network of
the cluster's pods alone, with what GKE's webhook sets. What they do wrong is a knob too: `controllers/knobs.py` names all.

Knobs (`Kube.set(name=value)`), beside those of the controllers:
  absent_groups=["kueue.x-k8s.io"]   a cluster without Kueue or JobSet
  kueue_versions=["v1beta2", "v1beta1"]   what is served, the preferred one first; v1beta1 answers with a warning, which kubectl prints to stderr
  garbage_s=2   what was owned by something deleted goes so much later (at once by itself)
  token="t"   where `Kube` has a login=: clients without this bearer token are Unauthorized
  watch_s=1.5   the server closes watches after this time (half an hour to an hour by itself)

Files: store (objects), discovery (which resources there are), call (a URL), server (HTTP), rest (verbs), streams (watch, logs), execute, patches,
selectors, validation (names, labels, sizes), schema (fields),
pod_validation, versions (Kueue's two), protobuf (what kubectl sends so), errors (texts), faults;
control, control_socket and samples (for tests). Containers' logs: `streams.log_file`.
Written from the public documents of the Kubernetes API; lab/tests holds it against kubectl. Texts that nobody has shown are marked [?].
"""
