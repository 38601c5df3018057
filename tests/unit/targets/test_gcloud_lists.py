"""Lists of gcloud that lack rows although the call succeeded: they are no lists."""

import pytest

from podwright.errors import UserError
from podwright.shell import Shell
from podwright.targets.google.gcloud import Gcloud
from podwright.targets.google.replies import Consequence, Reply


class Partial(Shell):
    def ask(self, *_, **__):  # type: ignore[no-untyped-def]
        return (
            0,
            "[]",
            "WARNING: Some requests did not succeed.\n - Required 'compute.resourcePolicies.list' permission\n",
        )


def test_a_list_with_refused_requests_is_not_an_empty_one() -> None:
    texts = []

    def classify(text: str, _: str) -> Reply:
        texts.append(text)
        return Reply(Consequence.FINAL, "NoPermission: no")

    gcloud = Gcloud(Partial(), classify)
    assert gcloud.listed(("gcloud",), "z") == ([], Reply(Consequence.FINAL, "NoPermission: no"))
    with pytest.raises(UserError, match="NoPermission"):
        gcloud.rows(("gcloud",))
    assert all("resourcePolicies.list" in text for text in texts)
