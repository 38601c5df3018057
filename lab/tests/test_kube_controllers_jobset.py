"""JobSets and Jobs of the simulated cluster: what is created, how they end, and what is removed."""

import pytest

from lab.kube import samples
from lab.kube.controllers import job, objects
from lab.kube.errors import ApiError
from lab.tests.stepped_cluster import Cluster

FIRST_FAILED = "(first failed job: w-slice-job-0)"
RESTARTABLE = [42, *range(127, 256)]


def failure_policy(container: str = "trainer") -> dict:
    codes = {"containerName": container, "operator": "NotIn", "values": RESTARTABLE}
    return {"rules": [{"action": "FailJob", "onPodConditions": [], "onExitCodes": codes}]}


def test_jobset_becomes_jobs_a_headless_service_and_indexed_pods() -> None:
    cluster = Cluster().with_slice()
    cluster.add(samples.jobset("w", "true"))
    cluster.tick()
    assert cluster.get("services", "w")["spec"]["clusterIP"] == "None"
    own = cluster.get("jobs", "w-slice-job-0")
    assert own["status"] | {"active": 4, "ready": 4} == own["status"] and "startTime" in own["status"]
    assert sorted(map(job.index_of, cluster.pods())) == [0, 1, 2, 3]
    pod = cluster.pods()[0]
    assert pod["metadata"]["name"].startswith("w-slice-job-0-0-") and pod["spec"]["hostname"] == "w-slice-job-0-0"
    assert objects.labels(pod)["jobset.sigs.k8s.io/jobset-name"] == "w" and pod["spec"]["subdomain"] == "w"
    row = cluster.get("jobsets", "w")["status"]["replicatedJobsStatus"][0]
    assert row == {"name": "slice-job", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}


def test_jobset_completes_when_all_pods_succeed() -> None:
    cluster = Cluster().with_slice()
    cluster.add(samples.jobset("w", "true"))
    cluster.tick()
    cluster.end_all()
    done = ("True", "CompletionsReached", "Reached expected number of succeeded pods")
    assert cluster.condition("jobs", "w-slice-job-0", "Complete") == done
    assert cluster.get("jobs", "w-slice-job-0")["status"]["completedIndexes"] == "0-3"
    completed = ("True", "AllJobsCompleted", "jobset completed successfully")
    assert cluster.condition("jobsets", "w", "Completed") == completed


def test_one_failed_pod_fails_the_jobset_and_its_other_pods_are_deleted() -> None:
    cluster = Cluster().with_slice()
    cluster.add(samples.jobset("w", "true"))
    cluster.tick()
    cluster.end(cluster.pods()[2], 1)
    cluster.tick()
    text = "Job has reached the specified backoff limit"
    assert cluster.condition("jobs", "w-slice-job-0", "Failed") == ("True", "BackoffLimitExceeded", text)
    text = f"jobset failed due to reaching max number of restarts {FIRST_FAILED}"
    assert cluster.condition("jobsets", "w", "Failed") == ("True", "ReachedMaxRestarts", text)
    assert [job.index_of(pod) for pod in cluster.pods()] == [2]  # deleted pods take their logs along


def test_jobset_without_a_failure_policy_says_failed_jobs() -> None:
    cluster = Cluster().with_slice()
    body = samples.jobset("w", "true")
    del body["spec"]["failurePolicy"]
    cluster.add(body)
    cluster.tick()
    cluster.end(cluster.pods()[0], 1)
    cluster.tick()
    text = f"jobset failed due to one or more job failures {FIRST_FAILED}"
    assert cluster.condition("jobsets", "w", "Failed") == ("True", "FailedJobs", text)


@pytest.mark.parametrize(
    ("code", "reason"), [(1, "PodFailurePolicy"), (137, "BackoffLimitExceeded"), (42, "BackoffLimitExceeded")]
)
def test_pod_failure_policy_goes_by_the_exit_code(code: int, reason: str) -> None:
    cluster = Cluster().with_slice()
    cluster.add(samples.jobset("w", "true", podFailurePolicy=failure_policy()))
    cluster.tick()
    failed = cluster.pods()[1]
    cluster.end(failed, code)
    cluster.tick()
    condition = cluster.condition("jobs", "w-slice-job-0", "Failed")
    assert condition and condition[1] == reason
    if reason == "PodFailurePolicy":
        what = f"Container trainer for pod {objects.key(failed)} failed with exit code 1"
        assert condition[2] == f"{what} matching FailJob rule at index 0"


def test_fail_jobset_rule_names_its_action() -> None:
    cluster = Cluster().with_slice()
    body = samples.jobset("w", "true", podFailurePolicy=failure_policy())
    rule = {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    body["spec"]["failurePolicy"] = {"rules": [rule], "maxRestarts": 3}
    cluster.add(body)
    assert cluster.get("jobsets", "w")["spec"]["failurePolicy"]["rules"][0]["name"] == "failurePolicyRule0"
    cluster.tick()
    cluster.end(cluster.pods()[0], 1)
    cluster.tick()
    condition = cluster.condition("jobsets", "w", "Failed")
    assert condition and condition[1] == "FailJobSetFailurePolicyAction"


def test_jobset_with_restarts_creates_its_jobs_again() -> None:
    cluster = Cluster().with_slice()
    body = samples.jobset("w", "true")
    body["spec"]["failurePolicy"]["maxRestarts"] = 1
    cluster.add(body)
    cluster.tick()
    cluster.end(cluster.pods()[0], 1)
    cluster.tick(20)
    assert cluster.get("jobsets", "w")["status"]["restarts"] == 1
    attempts = {objects.labels(pod)["jobset.sigs.k8s.io/restart-attempt"] for pod in cluster.pods()}
    assert attempts == {"1"} and len(cluster.pods()) == 4
    cluster.end_all()
    assert objects.is_true(cluster.get("jobsets", "w"), "Completed")


def test_job_ends_at_its_deadline() -> None:
    cluster = Cluster().with_slice()
    cluster.add(samples.jobset("w", "true", activeDeadlineSeconds=20))
    cluster.tick(30)
    assert not objects.is_true(cluster.get("jobsets", "w"), "Failed")
    cluster.tick(20)
    text = "Job was active longer than specified deadline"
    assert cluster.condition("jobs", "w-slice-job-0", "Failed") == ("True", "DeadlineExceeded", text)
    assert objects.is_true(cluster.get("jobsets", "w"), "Failed") and cluster.pods() == []


@pytest.mark.parametrize("ttl", [None, 30])
def test_finished_jobset_is_removed_after_its_ttl(ttl: int | None) -> None:
    cluster = Cluster().with_slice()
    body = samples.jobset("w", "true")
    if ttl is not None:
        body["spec"]["ttlSecondsAfterFinished"] = ttl
    cluster.add(body)
    cluster.tick()
    cluster.end_all()
    cluster.tick(20)
    assert len(cluster.store.list("jobsets")) == 1
    cluster.tick(60)
    left = [cluster.store.list(resource) for resource in ("jobsets", "jobs", "pods", "services")]
    assert bool(left[0]) == (ttl is None) and (ttl is None or left == [[], [], [], []])


def test_deleting_a_jobset_ends_its_pods_first() -> None:
    cluster = Cluster().with_slice()
    cluster.add(samples.jobset("w", "true"))
    cluster.tick()
    cluster.store.delete("jobsets", "w", "default")
    assert len(cluster.pods()) == 4 and all(map(objects.deleting, cluster.pods()))
    cluster.tick()
    assert cluster.pods() == [] and cluster.store.list("services") == []


def test_pod_deleted_by_hand_fails_a_job_without_retries() -> None:
    cluster = Cluster().with_slice()
    cluster.add(samples.jobset("w", "true"))
    cluster.tick()
    cluster.store.delete("pods", objects.name(cluster.pods()[1]), "default", grace_s=0)
    cluster.tick()
    assert objects.is_true(cluster.get("jobsets", "w"), "Failed") and cluster.pods() == []
    assert cluster.get("jobs", "w-slice-job-0")["status"]["failed"] == 4


def test_suspending_a_jobset_removes_its_pods_and_resuming_creates_them_again() -> None:
    cluster = Cluster().with_slice()
    cluster.add(samples.jobset("w", "true"))
    cluster.tick()

    def suspend(value: bool) -> None:
        cluster.store.change("jobsets", "w", "default", lambda copy: copy["spec"].update(suspend=value))
        cluster.tick()

    suspend(True)
    assert cluster.pods() == []
    assert cluster.condition("jobsets", "w", "Suspended") == ("True", "SuspendedJobs", "jobset is suspended")
    assert cluster.condition("jobs", "w-slice-job-0", "Suspended") == ("True", "JobSuspended", "Job suspended")
    suspend(False)
    assert len(cluster.pods()) == 4
    assert cluster.condition("jobsets", "w", "Suspended") == ("False", "ResumeJobs", "jobset is resumed")


def test_disrupted_pod_is_replaced_where_a_rule_ignores_it() -> None:
    cluster = Cluster().with_slice()
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    cluster.add(samples.jobset("w", "true", podFailurePolicy={"rules": [rule]}))
    cluster.tick()
    lost = cluster.pods()[3]
    objects.add_condition(
        cluster.store, "pods", lost, cluster.now, "DisruptionTarget", True, "TerminationByKubelet", ""
    )
    cluster.end(lost, 143)
    cluster.tick()
    running = [pod for pod in cluster.pods() if not objects.finished(pod)]
    assert sorted(map(job.index_of, running)) == [0, 1, 2, 3]
    assert cluster.get("jobs", "w-slice-job-0")["status"]["failed"] == 0


def test_webhook_that_is_down_refuses_jobsets_with_its_service() -> None:
    cluster = Cluster(webhooks_down=["jobset"])
    with pytest.raises(ApiError) as refusal:
        cluster.add(samples.jobset("w", "true"))
    assert 'failed calling webhook "mjobset.kb.io"' in str(refusal.value)
    assert str(refusal.value).endswith('no endpoints available for service "jobset-webhook-service"')


def test_pods_that_a_webhook_refuses_are_an_event_of_their_job() -> None:
    cluster = Cluster().with_slice()
    cluster.add(samples.jobset("w", "true"))
    cluster.store.knobs["webhooks_down"] = ["jobset"]
    cluster.tick()
    assert cluster.pods() == []
    assert 'failed calling webhook "mpod.kb.io"' in cluster.events("FailedCreate")[0]
    cluster.store.knobs["webhooks_down"] = []
    cluster.tick()
    assert len(cluster.pods()) == 4


def test_indexes_are_written_as_ranges() -> None:
    for numbers, text in (({0, 1, 2, 5}, "0-2,5"), (set(), ""), ({7}, "7"), ({0, 1}, "0-1")):
        assert job.ranges(numbers) == text and job.indexes(text) == numbers
