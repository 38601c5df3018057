"""Which attempt may write to a storage. A bucket has no locks: an object says who has the storage, and is looked at before every commit."""

from __future__ import annotations

import dataclasses
import json
import secrets

from podwright.errors import UserError
from podwright.rundir import Record
from podwright.storage.base import Cause, Conflict, Storage, StorageFailure, Versioned, record_in

NAME = "claim"


class ClaimLost(UserError):
    """Another attempt has the storage now: what this one would still write is refused."""

    def __init__(self, url: str, attempt: int, holder: object):
        super().__init__(
            f"attempt {holder} has taken over storage {url}: a write of attempt {attempt} is refused",
            "leave the run to the later attempt",
            "claim-lost",
        )


def gone(url: str, what: str = "claim") -> StorageFailure:
    """Of a storage that no longer has what was written to it: it was removed, or is not mounted any more. Nothing may be written there
    then: it would fill another disk, and hide what comes back."""
    fix = "restore its objects" if "://" in url else "mount or restore the folder"
    return StorageFailure(f"the {what} of {url} is gone", fix, Cause.SERVER)


@dataclasses.dataclass(frozen=True)
class Claim:
    """An attempt's right to write, as long as the object in the storage is this one."""

    storage: Storage
    attempt: int
    allocation: str
    """the name of the machines that the attempt is on; "" where they have none"""
    token: str
    """of one start of the attempt, for a scheduler may start it several times"""

    @classmethod
    def take(cls, storage: Storage, attempt: int, allocation: str = "", takeover: bool = False) -> Claim:
        """Claim `storage`. UserError while another attempt has it, unless the launcher knows that its processes are gone
        (`takeover`), and always when a later attempt has it."""
        claim = cls(storage, attempt, allocation, secrets.token_hex(8))
        while True:
            there = storage.read(NAME)
            if there is not None:
                _check_free(storage, _holder(storage, there), attempt, takeover)
            try:
                storage.write(NAME, claim._encoded(), there.generation if there else 0)
                return claim
            except Conflict:
                continue  # somebody else was quicker

    def check(self) -> None:
        """ClaimLost if another attempt, or another start of this one, has taken the storage; StorageFailure if the claim is gone."""
        if (there := self.storage.read(NAME)) is None:
            raise gone(self.storage.url)
        holder = _holder(self.storage, there)
        if holder["token"] != self.token:
            raise ClaimLost(self.storage.url, self.attempt, holder["attempt"])

    def release(self) -> None:
        """Let any attempt claim the storage. Harmless when another one has it already."""
        there = self.storage.read(NAME)
        if there is None or _holder(self.storage, there)["token"] != self.token:
            return
        try:
            self.storage.write(NAME, self._encoded(released=True), there.generation)
        except Conflict:
            return

    def _encoded(self, released: bool = False) -> bytes:
        fields = {"attempt": self.attempt, "allocation": self.allocation, "token": self.token, "released": released}
        return json.dumps(fields).encode()


def _holder(storage: Storage, there: Versioned) -> Record:
    return record_in(there.data, f"{storage.url}/{NAME}", ("attempt", "allocation", "token", "released"))


def _check_free(storage: Storage, holder: Record, attempt: int, takeover: bool) -> None:
    before = int(str(holder["attempt"]))
    if before > attempt:
        raise UserError(
            f"attempt {before} has storage {storage.url}, and this is attempt {attempt}",
            "leave it to the later attempt",
            "storage-claimed",
        )
    if before == attempt or holder["released"] or takeover:
        return
    machines = f" on {holder['allocation']}" if holder["allocation"] else ""
    raise UserError(
        f"attempt {before}{machines} has storage {storage.url} and may still be at work",
        "end it, then start the trainer with --takeover; `podwright resume` does both",
        "storage-claimed",
    )
