"""What the cloud says of a login, of lists and of a bucket before anything is requested: the same for every target of Google Cloud."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.rundir import Record
from podwright.targets.base import Remark
from podwright.targets.google.gcloud import Argv, Gcloud
from podwright.targets.google.replies import Consequence, Reply
from podwright.targets.settings.google import region_of

ACCOUNTS: Argv = ("gcloud", "auth", "list", "--format=json")
_CERTAIN = (Consequence.FINAL, Consequence.ABSENT)
_OF_LOGIN = ("NoContext", "NoPlugin", "OldLogin", "NoLogin")
"""reasons for which the login of this machine gets no answer"""


def login(gcloud: Gcloud) -> tuple[str, Remark]:
    """The account of gcloud, "" without one, and what to say of it."""
    rows, failure = gcloud.listed(ACCOUNTS)
    account = next((row["account"] for row in rows if row.get("status") == "ACTIVE"), "")
    if failure:
        return "", failed("the login of gcloud", failure)
    if not account:
        return "", Remark("error", "gcloud has no login", "type gcloud auth login")
    return account, Remark("info", f"gcloud is logged in as {account}")


def describe_bucket(url: str) -> Argv:
    """`url`: gs://BUCKET."""
    return ("gcloud", "storage", "buckets", "describe", url, "--format=json")


def bucket(gcloud: Gcloud, url: str, project: str, zones: Sequence[str], account: str) -> list[Remark]:
    """Of the bucket of `url`, "" for none, by the login of gcloud; with application-default credentials the storage is tried by the trainer's own calls."""
    if not url:
        return []
    name = "gs://" + url.removeprefix("gs://").partition("/")[0]
    record, failure = gcloud.record(describe_bucket(name), "-")
    if failure is None:
        return [_location(name, record, {region_of(zone) for zone in zones})]
    if "not found: 404" in failure.reason or failure.consequence is Consequence.ABSENT:
        create = f"type gcloud storage buckets create {name} --project={project} --location={region_of(zones[0])}"
        return [Remark("error", f"there is no bucket {name}", create)]
    if failure.reason.startswith("NoPermission"):
        what = f"{account} may not describe {name} (storage.buckets.get), so its location is not known"
        return [Remark("warning", what, "ask for the role roles/storage.bucketViewer on it, or leave it at that")]
    return [Remark("inconclusive", f"{name} cannot be described: {failure.reason}", failure.fix)]


def _location(name: str, record: Record, regions: set[str]) -> Remark:
    place = str(record.get("location", "unknown")).lower()
    what = f"bucket {name} is in location {place}"
    if record.get("location_type") == "region" and place not in regions:
        outside = f"{what}, and the zones of the target are in {', '.join(sorted(regions))}"
        return Remark("warning", outside, "transfers between regions are slower and are charged; take a bucket there")
    return Remark("info", what)


def failed(what: str, failure: Reply) -> Remark:
    fix = failure.fix or "check again later"
    certain, unanswered = failure.consequence in _CERTAIN, failure.reason.partition(":")[0] in _OF_LOGIN
    return Remark("error" if certain else "inconclusive", f"{what}: {failure.reason}", fix, unanswered)


def as_warning(remark: Remark) -> Remark:
    return Remark("warning", remark.what, remark.fix) if remark.level == "error" else remark
