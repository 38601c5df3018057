"""Failures of gcloud whose texts were collected apart from the table that tells them apart: none has a slice deleted, missed or created twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import cloud, tpu_python
from lab.gcloud.control import Gcloud
from lab.gcloud.failure_texts import TEXTS, FailureText, filled
from lab.gcloud.session import NO_LOGIN
from podwright.errors import UserError
from podwright.targets.machines import AllocationState
from tests.e2e.conftest import LAUNCH
from tests.e2e.test_tpu_vm import A, B, TpuBench, endings, gcloud, lab, provisioner, until  # noqa: F401

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
NAMES = [text.name for text in TEXTS]
RUN = Path("/runs/r")


@pytest.mark.long
def test_no_failure_of_a_call_is_taken_for_the_state_of_the_slice(gcloud: Gcloud) -> None:  # noqa: F811
    own = provisioner()
    for number, text in enumerate(TEXTS, 1):
        request = own.describe_request(RUN, 1.0, number, ())
        reply = filled(text, "my-project", A, request.name)
        gcloud.fault("queued-resources create", text=reply)
        answer = own.create(request)
        refused = answer.state is AllocationState.REFUSED
        assert refused or answer.state is AllocationState.UNKNOWN, (text.name, answer)
        assert not (refused and text.passes and not answer.scope), (text.name, answer, "it may succeed later")
        assert gcloud.resources() == []

    request = own.describe_request(RUN, 1.0, 99, ())
    own.create(request)
    until(own, request, AllocationState.READY)
    fresh = provisioner()  # one that has not seen the slice ready
    for text in TEXTS:
        reply = filled(text, "my-project", A, request.name)
        for verb in ("queued-resources describe", "tpu-vm describe"):
            for each in (own, fresh):
                gcloud.set(faults=[])
                gcloud.fault(verb, text=reply, calls=None)
                answer = each.describe(request)
                known = answer.state is AllocationState.READY and each is own
                assert known or answer.state is AllocationState.UNKNOWN, (text.name, verb, answer)
    gcloud.set(faults=[])
    for text in TEXTS:
        gcloud.fault("queued-resources delete", text=filled(text, "my-project", A, request.name))
        try:
            own.delete(request)
        except UserError as e:
            assert not text.passes and e.fix, text.name
        assert own.describe(request).state is AllocationState.READY, text.name
    own.delete(request)
    until(own, request, AllocationState.GONE)
    assert gcloud.resources() == []


def test_a_gcloud_that_finds_no_login_is_started_once_more_before_that_is_believed(
    gcloud: Gcloud,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("podwright.targets.google.gcloud.LOGIN_PAUSE_S", 0.1)
    own = provisioner()
    request = own.describe_request(RUN, 1.0, 1, ())
    gcloud.capacity(A, 0)
    gcloud.fault("queued-resources create", text=NO_LOGIN)
    assert own.create(request).state is AllocationState.WAITING
    gcloud.fault("queued-resources describe", text=NO_LOGIN)
    assert own.describe(request).state is AllocationState.WAITING
    gcloud.set(account="")
    assert own.describe(request).state is AllocationState.UNKNOWN
    answer = own.create(request)
    assert answer.state is AllocationState.REFUSED and "gcloud auth login" in answer.reason


def test_a_gcloud_that_waits_for_a_node_and_finds_no_login_lets_it_be_requested_again(gcloud: Gcloud) -> None:  # noqa: F811
    own = provisioner(queued=False)
    request = own.describe_request(RUN, 1.0, 1, ())
    gcloud.fault("tpu-vm create", text=NO_LOGIN)
    assert own.create(request).state is AllocationState.WAITING
    until(own, request, AllocationState.GONE, AllocationState.REFUSED)
    assert own.describe(request).state is AllocationState.GONE


@pytest.fixture
def stood_in(lab: cloud.Lab, gcloud: Gcloud, tmp_path: Path) -> Iterator[TpuBench]:  # noqa: F811
    bench = TpuBench(tmp_path, python=str(tpu_python.write(lab.root, LAUNCH.with_name("standin.py"))), setup=[])
    yield bench
    bench.close()


@pytest.mark.brief(1)
@pytest.mark.parametrize("queued", [True, False])
@pytest.mark.parametrize(
    ("zone", "knobs", "words"),
    [
        ("us-east9-z", {}, "correct zones of the target"),
        (A, {"api_enabled": False}, "gcloud services enable tpu.googleapis.com"),
        (A, {"account": ""}, "type gcloud auth login"),
    ],
    ids=["zone", "api", "login"],
)
def test_a_run_whose_request_is_refused_for_good_ends_in_one_line_and_needs_no_deletion(
    gcloud: Gcloud,  # noqa: F811
    tmp_path: Path,
    zone: str,
    knobs: dict[str, object],
    words: str,
    queued: bool,
) -> None:
    bench = TpuBench(tmp_path, zones=[zone], queued=queued)
    gcloud.set(**knobs)
    code, out, err = bench.run(5, "mesh.fsdp=16", "--on", "tpu")
    assert code != 0 and words in out + err and "Traceback" not in err and "cannot be deleted" not in out + err
    assert [r["ending"] for r in bench.records("journal.jsonl") if r["event"] == "abandoned"] == ["BAD_INPUT"]
    assert bench.events("allocation")[-1] == "allocation gone" and gcloud.resources() == []


@pytest.mark.long
@pytest.mark.parametrize("text", TEXTS, ids=NAMES)
def test_a_run_survives_a_failure_at_each_kind_of_call(gcloud: Gcloud, stood_in: TpuBench, text: FailureText) -> None:  # noqa: F811
    """A cause that only the user can mend may end a command, in one line; typing resume once it is mended ends the run well."""
    reply = filled(text, "my-project", A, "pw-r")
    gcloud.fault("queued-resources create", text=reply)
    gcloud.fault("tpu-vm describe", text=reply, calls=6)
    gcloud.fault("queued-resources describe", text=reply, calls=6)
    gcloud.fault("tpu-vm get-guest-attributes", text=reply, calls=2)
    gcloud.fault("queued-resources delete", text=reply)
    code, out, err = stood_in.run(5, "mesh.fsdp=16", "--on", "tpu")
    for _ in range(2):
        if code == 0:
            break
        assert not text.passes and "Traceback" not in err, (out, err)
        assert err.strip() or out.strip()
        code, out, err = stood_in.call("resume", "r")
    assert code == 0, (out, err)
    assert endings(stood_in)[-1][0] == "FINISHED" and stood_in.steps() == [1, 2, 3, 4, 5]
    assert gcloud.resources() == [] and len(gcloud.ledger()) == 1, "one slice, whatever was answered"
