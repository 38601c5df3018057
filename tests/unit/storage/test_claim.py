"""One attempt at a time writes to a storage, and a later one can shut an earlier one out."""

import pytest

from podwright.errors import UserError
from podwright.storage import open_storage
from podwright.storage.base import StorageFailure
from podwright.storage.claim import Claim, ClaimLost


def test_a_storage_that_an_attempt_may_still_write_to_is_not_given_to_the_next(url):
    storage = open_storage(url)
    first = Claim.take(storage, 1, "slice-1")
    with pytest.raises(UserError, match=r"attempt 1 on slice-1 has storage .* and may still be at work; end it"):
        Claim.take(storage, 2, "slice-2")
    first.check()


def test_a_late_write_of_an_earlier_attempt_is_refused_after_a_takeover(url):
    storage = open_storage(url)
    first = Claim.take(storage, 1, "slice-1")
    second = Claim.take(storage, 2, "slice-2", takeover=True)
    with pytest.raises(ClaimLost, match=r"attempt 2 has taken over storage .*: a write of attempt 1 is refused"):
        first.check()
    first.release()
    second.check()


def test_a_released_storage_is_free_and_a_later_attempt_is_never_shut_out(url):
    storage = open_storage(url)
    Claim.take(storage, 1).release()
    third = Claim.take(storage, 3)
    with pytest.raises(UserError, match=r"attempt 3 has storage .*, and this is attempt 2; leave it"):
        Claim.take(storage, 2, takeover=True)
    third.check()


def test_a_second_start_of_an_attempt_shuts_the_first_start_out(url):
    storage = open_storage(url)
    first = Claim.take(storage, 1)
    second = Claim.take(storage, 1)
    with pytest.raises(ClaimLost):
        first.check()
    second.check()


def test_claims_are_written_under_a_condition(bucket):
    storage = open_storage(bucket.url)
    Claim.take(storage, 1)
    generation = storage.read("claim").generation
    Claim.take(storage, 2, takeover=True)
    conditions = [r.query["ifGenerationMatch"] for r in bucket.log if r.method == "POST" and r.object_name == "claim"]
    assert conditions == ["0", str(generation)]


def test_a_claim_that_is_gone_is_a_failure_of_the_storage(url):
    storage = open_storage(url)
    claim = Claim.take(storage, 1)
    storage.delete("claim")
    fix = "restore its objects" if url.startswith("gs://") else "mount or restore the folder"
    with pytest.raises(StorageFailure, match=f"the claim of {url} is gone; {fix}"):
        claim.check()
    claim.release()
    assert storage.read("claim") is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"attempt": 1}'])
def test_a_damaged_claim_is_one_line(url, content):
    storage = open_storage(url)
    claim = Claim.take(storage, 1)
    storage.write("claim", content)
    for act in (claim.check, claim.release, lambda: Claim.take(storage, 2, takeover=True)):
        with pytest.raises(UserError) as e:
            act()
        assert e.value.code == "damaged-file"
