"""What a bucket answers, by way of tensorstore (orbax), google-cloud-storage and gcsfs."""

from __future__ import annotations

from podwright.rundir import Ending
from podwright.watch.rules.rule import RESUME, rule

RULES = (
    rule(
        "bucket-rate",
        r"rate of change requests to the object|HTTP response code: 429|TooManyRequests: 429|storage\.googleapis\S* .{0,200}\b429\b"
        r"|rateLimitExceeded|userRateLimitExceeded",
        Ending.STORAGE_UNREACHABLE,
        "the bucket refuses requests because there are too many in a short time, most often writes of the same object",
        f"wait a minute, {RESUME}; let one process write each object, and save less often",
        passing=True,
    ),
    rule(
        "bucket-server",
        r"HTTP response code: 50[0234]|(ServiceUnavailable|GatewayTimeout|InternalServerError|BadGateway): 50[0234]|backendError",
        Ending.STORAGE_UNREACHABLE,
        "the bucket's servers failed and did not recover while the program waited",
        f"wait a few minutes, {RESUME}",
        passing=True,
    ),
    rule(
        "bucket-forbidden",
        r"does not have storage\.\w+\.\w+ (access|permission)|HTTP response code: 40[13]|Forbidden: 403|Forbidden: https?://\S*storage"
        r"|Permission 'storage\.\w+\.\w+' denied",
        Ending.BAD_INPUT,
        "the account that the line names may not do this in the bucket",
        "grant it the role Storage Object Admin of the bucket (of a slice: the service account of its machines), then type podwright resume RUN",
    ),
    rule(
        "bucket-missing",
        r"The specified bucket does not exist|HTTP response code: 404|NotFound: 404 .{0,80}storage\.googleapis|Bucket not found|Invalid bucket name",
        Ending.BAD_INPUT,
        "there is no bucket or object of that name",
        "correct the address (gcloud storage ls shows your buckets); an object may have been deleted by a lifecycle rule of the bucket",
    ),
    rule(
        "bucket-conflict",
        r"HTTP response code: 412|PreconditionFailed: 412|conditionNotMet|At least one of the pre-conditions you specified did not hold",
        Ending.CRASHED,
        "another process wrote the same object in the meantime: two runs use the same directory of the bucket, or an earlier process still runs",
        "end the other process, or give this run a directory of its own, then type podwright resume RUN",
    ),
)
