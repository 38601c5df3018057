"""What is no path of this machine: a misspelt path is refused, an id is asked for on the hub, and without a network nothing is ok."""

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from podwright.cli.app import main
from podwright.errors import both_ends
from podwright.plan.checks import hub, multimodal
from podwright.plan.findings import Finding, InconclusiveCheck
from podwright.recipe.load import load
from podwright.recipe.paths import looks_like_path
from tests.unit.plan.static import SMALL_CONFIG, check


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    hub._look_up.cache_clear()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    yield
    hub._look_up.cache_clear()


CONFIG = SMALL_CONFIG | {"hidden_size": 64}
COMMIT = "a" * 40


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub's interface as is asked for an id: a model `someone/small`, a data set `someone/sums`."""

    def do_GET(self) -> None:
        content = {
            "/api/models/someone/small": {"id": "someone/small", "sha": COMMIT, "siblings": []},
            "/api/datasets/someone/sums": {"id": "someone/sums", "sha": COMMIT, "siblings": []},
            "/someone/small/resolve/main/config.json": CONFIG,
        }.get(self.path.partition("?")[0])
        body = json.dumps(content or {"error": "Repository not found"}).encode()
        self.send_response(200 if content else 404)
        if not content:
            self.send_header("X-Error-Code", "RepoNotFound")
        for name, value in {"Content-Length": str(len(body)), "ETag": '"1"', "X-Repo-Commit": COMMIT}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: huggingface_hub.hf_api.HfApi(endpoint=endpoint))
    yield
    server.shutdown()


def findings(folder: Path, *overrides: str) -> list[Finding]:
    base = ["model.name=mine", "data.num_train=400"]
    listed = check(load("qwen3-tiny-arithmetic-grpo", [*base, *overrides]), None, folder)
    return [f for f in listed if f.check in ("model", "data")]


@pytest.mark.parametrize(
    "source",
    [
        "./x",
        "../x",
        "/x",
        "~/x",
        "a/b/c",
        "mine/x",
        "data/gsm8k",
        "models/Qwen3-1.7B",
        "train.jsonl",
        "owner/set.parquet",
        "gs://bucket/x",
        "a b",
        "mime/x",
        "min",
        "dangling",
        "x" * 300,
    ],
)
def test_what_looks_like_a_path_is_one(tmp_path: Path, source: str) -> None:
    for folder in ("mine", "mimes", "mins"):
        (tmp_path / folder).mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    assert looks_like_path(source, tmp_path)
    (model,) = (f for f in findings(tmp_path, f"model.source={source}") if f.check == "model")
    assert model.level == "error" and both_ends(source) in model.message


@pytest.mark.parametrize("source", ["openai/gsm8k", "Qwen/Qwen3-1.7B", "gpt2", "owner/name.v2", "Minerva/x"])
def test_an_owner_and_a_name_may_be_on_the_hub(tmp_path: Path, source: str) -> None:
    (tmp_path / "mine").mkdir()
    assert not looks_like_path(source, tmp_path)


def test_the_nearest_name_that_is_there_is_proposed(tmp_path: Path) -> None:
    (tmp_path / "models" / "Qwen3-1.7B").mkdir(parents=True)
    (found,) = (f for f in findings(tmp_path, "model.source=models/Qwen3-1.7") if f.check == "model")
    assert found.fix == "did you mean model.source=models/Qwen3-1.7B?"
    (found,) = (f for f in findings(tmp_path, "model.source=model/Qwen3-1.7B") if f.check == "model")
    assert found.fix == (
        "check the path; on the Hugging Face hub an id is OWNER/NAME, and model/Qwen3-1.7B is taken for a path"
    )


def test_without_a_network_an_id_is_named_as_unchecked(tmp_path: Path) -> None:
    found = findings(tmp_path, "data.source=someone/sums", "model.source=someone/small")
    assert [f.level for f in found] == ["inconclusive"] * 3
    assert all("not checked: HF_HUB_OFFLINE is set" in f.message and f.fix for f in (found[0], found[2]))
    assert "dimensions of model.source=someone/small are not known" in found[1].message


def test_the_hub_is_asked_for_an_id_and_its_config_decides(tmp_path: Path, online: None) -> None:
    found = findings(tmp_path, "data.source=someone/sums", "model.source=someone/small")
    assert [f.level for f in found] == ["info", "info", "info"] and "mine has 86.4 K parameters" in found[1].message
    (wrong, _) = findings(tmp_path, "model.source=someone/small", "model.name=qwen3-1.7b")
    assert wrong.level == "error" and "hidden_size=64" in wrong.message and "instead of 2048" in wrong.message


@pytest.mark.parametrize("key", ["model", "data"])
def test_an_id_that_the_hub_does_not_have_is_refused(tmp_path: Path, online: None, key: str) -> None:
    (found,) = (f for f in findings(tmp_path, f"{key}.source=someone/typo") if f.check == key)
    assert found.level == "error" and f"{key}.source=someone/typo is no path here" in found.message


def test_a_hub_that_does_not_answer_leaves_the_id_unchecked(
    tmp_path: Path, online: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(Hub, "do_GET", lambda _: threading.Event().wait(3))
    (found,) = (f for f in findings(tmp_path, "data.source=someone/sums") if f.check == "data")
    assert found.level == "inconclusive" and "has not answered within" in found.message


def test_a_size_that_the_name_of_the_model_contradicts_is_refused(tmp_path: Path) -> None:
    for source in ("Qwen/Qwen3-4B", "Qwen/Qwen3-4B-Instruct-2507"):
        (wrong, _) = findings(tmp_path, f"model.source={source}", "model.name=qwen3-1.7b")
        assert wrong.level == "error" and "instead of 2048" in wrong.message and wrong.fix
        assert "mine has 4.02 B parameters" in findings(tmp_path, f"model.source={source}")[1].message


def test_the_command_of_the_readme_names_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = ["data.source=data/gsm8k", "model.source=models/Qwen3-1.7B"]
    assert main(["plan", "qwen3-1.7b-gsm8k-grpo", *typed]) == 3
    out = capsys.readouterr().out
    assert all(f"error: {pair} is not there" in out for pair in typed)


@pytest.mark.parametrize("recipe", ["phase2-tiny", "phase1-tiny", "almodel-tiny"])
def test_data_of_the_other_kinds_is_no_device_and_no_pipe(tmp_path: Path, recipe: str) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    for source in ("/dev/zero", str(pipe)):
        found = check(load(recipe, [f"data.source={source}"]), None, tmp_path)
        assert any(f.level == "error" and f.check == "data" for f in found), source


@pytest.mark.parametrize(
    ("source", "is_known"),
    [("Qwen/Qwen3-1.7B", True), ("qwen/qwen3-1.7b-base", True), ("someone/finetune", False), ("Qwen/Qwen9-1T", False)],
)
def test_an_id_that_nobody_answers_for_has_the_size_in_its_own_name_or_none(
    source: str, is_known: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The name of the recipe's model says nothing of another id."""
    argv = [
        "plan",
        "qwen3-1.7b-gsm8k-grpo",
        f"model.source={source}",
        "--on",
        "v6e-16",
        "--only",
        "model,memory",
        "--json",
    ]
    assert main(argv) in (3, 4)
    planned = json.loads(capsys.readouterr().out)
    unknown = {f["code"] for f in planned["findings"] if f["level"] == "inconclusive"}
    assert ("unknown-dimensions" not in unknown) == is_known == bool(planned["memory"])


def test_a_multimodal_model_that_nobody_answers_for_is_not_the_recipe_s_own(tmp_path: Path) -> None:
    section = load("phase2-qwen2.5-0.5b-cluster", ["model.source=someone/finetune"]).model
    with pytest.raises(InconclusiveCheck, match=r"the dimensions of model\.source=someone/finetune are not known here"):
        multimodal.dimensions(section, tmp_path)
    section = section.model_copy(update={"source": "Qwen/Qwen2.5-0.5B-Instruct"})
    assert multimodal.dimensions(section, tmp_path).hidden_size == 896


@pytest.mark.parametrize(
    "source",
    ["/abs/nope", "./nope", "~/models/x", "org/name/", "Qwen/Qwen3-0.6B@main", "-x", " Qwen/x", "a" * 120, "gs://b/m",
     "https://huggingface.co/a/b", "a--b", "x.git"],
)  # fmt: skip
def test_a_model_that_can_be_no_id_is_refused_in_one_line(source: str, tmp_path: Path) -> None:
    for base in (["data.source=arithmetic"], ["data.source=n.jsonl"]):
        (tmp_path / "n.jsonl").write_text('{"question": "1?", "answer": "#### 1"}\n' * 9)
        refused = [f for f in findings(tmp_path, *base, f"model.source={source}") if f.check == "model"]
        (finding,) = [f for f in refused if f.level == "error"]
        assert "model.source=" in finding.message and len(finding.message + finding.fix) < 240
        assert finding.code == (
            "not-local" if "://" in source else "not-on-hub" if source in ("a--b", "x.git") else "no-such-file"
        )
