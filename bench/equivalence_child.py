"""One section of the equivalence corpus, run by one state of the product: that on PYTHONPATH. Started by equivalence.py.

python bench/equivalence_child.py SECTION OUT [--scripts PATH]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import lzma
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from equivalence_normal import Normal, document, findings, page

BENCH = Path(__file__).resolve().parent
DATA, ROOT = BENCH / "equivalence", BENCH.parent
LIMIT_S = 600  # of one case
SCRIPT_VALUES = [
    "PROJECT_ID=a-project",
    "CLUSTER_NAME=a-cluster",
    "ZONE=us-central1-ai1a",
    "BASE_OUTPUT_DIR=gs://a-bucket/runs",
    "WORKLOAD_IMAGE=gcr.io/a-project/image:tag",
    "your-gcs-bucket-path=gs://a-bucket/runs",
]
GOOD = {
    "qwen3-tiny-arithmetic-grpo": ["data.num_train=200", "data.num_test=20", "mesh.fsdp=8", "--on", "v6e-8"],
    "almodel-tiny": ["mesh.fsdp=8", "--on", "v6e-8"],
    "phase1-tiny": ["--on", "1xH100-80GB"],
    "phase2-tiny": ["--on", "1xH100-80GB"],
}
"""with which a recipe is not refused"""
OF_TARGET = {
    "PROJECT_ID",
    "CLUSTER_NAME",
    "ZONE",
    "BASE_OUTPUT_DIR",
    "WORKLOAD_IMAGE",
    "ARTIFACT_DIR",
    "WORKLOAD_NAME",
    "TPU_WORKER_ID",
}
"""variables that a target or a pod has values for"""
VERDICTS = {0: "ok", 1: "refused", 2: "refused", 3: "refused", 4: "inconclusive"}
Record = dict[str, Any]


class Answer:
    """What one command line of podwright answered."""

    def __init__(self, code: Any, out: str, err: str, normal: Normal):
        self.code, self.err = code, err
        self.document = document(out)
        self.text = f"{out}\n{err}"
        self.normal = normal

    def record(self) -> Record:
        """The whole document, its findings as facts."""
        parts = self.document if isinstance(self.document, list) else [self.document]
        kept: list[Any] = []
        for part in parts:
            if isinstance(part, dict) and "findings" in part:
                local = str(part.get("target", "")).startswith(("local", "cpu-"))
                part = part | {"findings": findings(part["findings"], with_numbers=not local)}
            elif isinstance(part, dict) and set(part) - {"code"} == {"error", "fix"}:
                part = {"error": True}
            kept.append(self.normal.value(part))
        return {"code": self.code, "document": kept if isinstance(self.document, list) else kept[0]}

    def verdict(self) -> Record:
        """Whether an input is refused and by which checks, without words."""
        part = self.document if isinstance(self.document, dict) else {}
        listed = [finding for finding in part.get("findings", []) if finding.get("level") != "info"]
        verdict = part.get("verdict") or VERDICTS.get(self.code, "crash")
        if verdict == "ok" and any(finding["level"] == "error" for finding in listed):
            verdict = "refused"
        checks = {f"{finding['check']} {finding['level']}": True for finding in listed}
        record = {"code": self.code, "verdict": verdict, "checks": checks}
        if "faults" in part:  # of `data check`
            faults = {f"line {fault.get('line')}, field {fault.get('field')}": True for fault in part["faults"]}
            record |= {"faults": faults} | {key: part[key] for key in ("lines", "valid") if key in part}
        return record


class Corpus:
    """Runs command lines of podwright, each in an empty directory of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.number = 0
        names = {str(folder): "FOLDER", str(Path.home()): "HOME", os.environ["PYTHONPATH"]: "TREE", str(ROOT): "TREE"}
        names[str(Path(os.environ["PODWRIGHT_TARGETS"]).parent)] = "CONFIG"
        names |= {str(BENCH): "BENCH", sys.executable: "PYTHON", sys.prefix: "PREFIX", socket.gethostname(): "HOSTNAME"}
        if len(socket.gethostname()) < 5:  # a short name is a part of other words
            del names[socket.gethostname()]
        self.places = names

    def call(self, argv: str | list[str], files: Mapping[str, Any] | None = None, as_json: bool = True) -> Answer:
        from podwright.cli.app import main

        self.number += 1
        place = self.place
        place.mkdir(parents=True)
        for name, content in (files or {}).items():
            write(place / name, content)
        os.chdir(place)
        words = [*(shlex.split(argv) if isinstance(argv, str) else argv), *(["--json"] if as_json else [])]
        out, err = io.StringIO(), io.StringIO()
        code: Any
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(LIMIT_S)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = int(main(words))
        except Exception as e:
            code = f"crash: {type(e).__name__}"
            print(f"{shlex.join(words)}: {code}: {e}", file=sys.stderr)
        finally:
            signal.alarm(0)
        return Answer(code, out.getvalue(), err.getvalue(), Normal(self.places | {str(place): "CWD"}))

    @property
    def place(self) -> Path:
        """The directory of the last call, always of one name: recipes are called after it."""
        return self.folder / str(self.number) / "case"


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {LIMIT_S} s")


def write(path: Path, content: Any) -> None:
    """A file of a case; `content` as cases.yaml describes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_text(content)
    elif "hex" in content:
        path.write_bytes(bytes.fromhex(content["hex"]))
    else:
        text = (DATA / content["from"]).read_text()
        for old, new in content.get("replace", {}).items():
            if old not in text:
                raise ValueError(f"{content['from']} has no {old!r}")
            text = text.replace(old, new)
        path.write_text(text)


def cases(name: str) -> dict[str, Any]:
    with (DATA / "cases.yaml").open() as f:
        return dict(yaml.safe_load(f)[name])


def split(case: Any) -> tuple[str, dict[str, Any]]:
    return (case, {}) if isinstance(case, str) else (case["argv"], case.get("files", {}))


def plans(corpus: Corpus, _: argparse.Namespace) -> Iterator[tuple[str, Record]]:
    for name, case in cases("plans").items():
        yield name, corpus.call(*split(case)).record()


def dry_runs(corpus: Corpus, _: argparse.Namespace) -> Iterator[tuple[str, Record]]:
    for name, case in cases("dry_runs").items():
        answer = corpus.call(*split(case))
        yield name, answer.record() | rendered(corpus, answer, "rendered", with_text=True)


def rendered(corpus: Corpus, answer: Answer, folder: str, with_text: bool) -> Record:
    """Files of a directory that a verb wrote: manifests as data, others as text if `with_text`, else by name."""
    files: Record = {}
    for path in sorted((corpus.place / folder).rglob("*")):
        if not path.is_file():
            continue
        name, text = str(path.relative_to(corpus.place)), path.read_text(errors="replace")
        if path.suffix in (".yaml", ".yml"):
            files[name] = answer.normal.value(list(yaml.safe_load_all(text)))
        else:
            files[name] = answer.normal.text(text) if with_text else True
    return {"files": files} if files else {}


def imports(corpus: Corpus, _: argparse.Namespace) -> Iterator[tuple[str, Record]]:
    for name, case in cases("imports").items():
        answer = corpus.call(*split(case))
        yield name, imported(answer)


def imported(answer: Answer) -> Record:
    """The recipe and the call of xpk; notes and findings by what they are about."""
    part = dict(answer.document) if isinstance(answer.document, dict) else {}
    part.pop("bash", None)
    part["notes"] = dict.fromkeys(part.get("notes", {}), True)
    for row in [part, *part.get("rows", [])]:
        row["findings"] = findings(row.get("findings", []), with_numbers=False)
    part["unread"] = dict.fromkeys(part.get("unread", {}), True)
    return {"code": answer.code, "document": answer.normal.value(part)}


def scripts(corpus: Corpus, options: argparse.Namespace) -> Iterator[tuple[str, Record]]:
    """launch.sh and its variants, and each launch script of a checkout: the call of xpk, the recipe and its JobSet."""
    text = (DATA / "launch.sh").read_text()
    yield from script(corpus, "launch.sh", {"toy-1b/4k-bf16-tpu7x-4x4x4/run_recipe.sh": text})
    with (DATA / "script_variants.yaml").open() as f:
        variants: dict[str, list[str]] = yaml.safe_load(f)
    for name, (old, new) in variants.items():
        files = {"variant/run.sh": text.replace(old, new)}
        for how, pairs in (("as it is", []), ("filled in", SCRIPT_VALUES)):
            argv = ["recipe", "import", "variant/run.sh", "--out", "out.yaml", *pairs]
            yield f"variant: {name}: {how}", imported(corpus.call(argv, files))
    if not options.scripts:
        return
    for path in sorted(options.scripts.rglob("*.sh")):
        if "xpk workload create" in path.read_text(errors="replace"):
            siblings = sorted(p for p in path.parent.iterdir() if p.is_file() and p.stat().st_size < 1 << 20)
            # with the folders above, from which a recipe has its name
            files = {str(p.relative_to(options.scripts)): p.read_text(errors="replace") for p in siblings}
            first = str(path.relative_to(options.scripts))
            yield from script(corpus, first, {first: files.pop(first), **files})


def script(corpus: Corpus, name: str, files: dict[str, Any]) -> Iterator[tuple[str, Record]]:
    """One script as it is and with values, and what is rendered of its recipe."""
    first = next(iter(files))
    yield f"{name}: as it is", imported(corpus.call(["recipe", "import", first, "--out", "out.yaml"], files))
    used = [pair for pair in SCRIPT_VALUES if pair.partition("=")[0] in "".join(map(str, files.values()))]
    yield f"{name}: filled in", imported(corpus.call(["recipe", "import", first, "--out", "out.yaml", *used], files))
    recipe = corpus.place / "out.yaml"
    if not recipe.exists():
        return
    text = recipe.read_text()
    machine = "pod-v5p" if "v5p" in str(yaml.safe_load(text).get("topology")) else "pod"
    variables = sorted(set(re.findall(r"\$\{(\w+)\}", text)) - OF_TARGET)
    typed = [f"{variable}=/mnt/{variable.lower()}" for variable in variables]
    argv = ["render", "out.yaml", "--on", machine, "-o", "rendered", "--force", *typed]
    answer = corpus.call(argv, {"out.yaml": text})
    yield (
        f"{name}: rendered",
        {"code": answer.code} | rendered(corpus, answer, "rendered", with_text=name == "launch.sh"),
    )


def bad_inputs(corpus: Corpus, _: argparse.Namespace) -> Iterator[tuple[str, Record]]:
    for recipe, overrides in cases("bad_values").items():
        for override in ["", *overrides]:
            key, _, value = override.partition("=")
            section = key.partition(".")[0] + "."
            given = [word for word in GOOD[recipe] if not word.startswith(section)]
            answer = corpus.call(["plan", recipe, *given, *([override] if override else [])])
            if not override and answer.verdict()["verdict"] == "refused":
                raise ValueError(f"{recipe} is refused without an override: {answer.text}")
            yield f"value: {recipe} {override or 'control'}", named(answer, key.rpartition(".")[2], value)
    entries = yaml.safe_load((DATA / "targets.yaml").read_text())
    for target, settings in cases("bad_targets").items():
        for setting in settings:
            key, _, value = setting.partition("=")
            entry = {"bad": entries[target] | {key: yaml.safe_load(value)}}
            answer = with_targets(entry, lambda: corpus.call("plan almodel-tiny --on bad --only mesh"))
            yield f"target: {target} {setting}", named(answer, key, value)
    text = (DATA / "launch.sh").read_text()
    for name, (old, new) in cases("bad_scripts").items():
        if old not in text:
            raise ValueError(f"launch.sh has no {old!r}")
        files = {"bad/run.sh": text.replace(old, new)}
        argv = ["recipe", "import", "bad/run.sh", "--out", "out.yaml", *SCRIPT_VALUES]
        yield f"script: {name}", corpus.call(argv, files).verdict() | {"written": (corpus.place / "out.yaml").exists()}
    for name, case in cases("bad_files").items():
        answer = corpus.call(*split(case))
        yield f"file: {name}", named(answer, case.get("field", ""), case.get("value", ""))


def named(answer: Answer, field: str, value: str) -> Record:
    """A verdict, and which of the field and the value that are wrong the answer names."""
    words = {"field": field, "value": value.strip("[]")}
    return answer.verdict() | {"names": {key: True for key, word in words.items() if word and word in answer.text}}


def with_targets(entries: Record, call: Callable[[], Answer]) -> Answer:
    before = os.environ["PODWRIGHT_TARGETS"]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=Path(before).parent) as f:
        f.write(yaml.safe_dump(entries))
        f.flush()
        os.environ["PODWRIGHT_TARGETS"] = f.name
        try:
            return call()
        finally:
            os.environ["PODWRIGHT_TARGETS"] = before


def runs(corpus: Corpus, _: argparse.Namespace) -> Iterator[tuple[str, Record]]:
    """Recorded runs: result.json, the pages, how they stand and what their logs are diagnosed as."""
    folder = corpus.folder / "recorded"
    with tarfile.open(DATA / "runs.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    corpus.places |= {str(folder): "RUNS"}
    names = sorted(path.name for path in folder.iterdir())
    for row in corpus.call(["list", "--runs", str(folder)]).record()["document"]:
        yield f"{row['name']}: listed", row
    for name in names:
        answer = corpus.call(["report", name, "--runs", str(folder), "--readme", "README.md"])
        record = answer.record() | pages(folder / name / "report")
        readme = corpus.place / "README.md"
        yield f"{name}: report", record | ({"readme": page(readme.read_text())} if readme.exists() else {})
        yield f"{name}: diagnosed", diagnosed(corpus.call(["diagnose", name, "--runs", str(folder)]))
    for first in ("grpo-demo", "pretrain-resumed", "maxtext-finished"):
        kind = first.partition("-")[0]
        others = [name for name in names if name.startswith(kind) and name != first][:2]
        argv = ["report", "--compare", first, *others, "--runs", str(folder)]
        yield f"{kind}: compared", corpus.call(argv).record()
    logs = {"maxtext_cpu": ROOT / "tests/unit/watch/maxtext_cpu.log"}
    logs |= {name: folder / name / "attempts/1/log.txt" for name in names if name.startswith("maxtext")}
    for name, path in logs.items():
        for language in ("en", "zh"):
            argv = ["report", "--log", str(path), "--out", "written", "--lang", language, "--readme", "README.md"]
            record = corpus.call(argv).record() | pages(corpus.place / "written")
            yield f"{name}: log in {language}", record


def pages(folder: Path) -> Record:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        "files": dict.fromkeys((str(path.relative_to(folder)) for path in files), True),
        "pages": {path.name: page(path.read_text()) for path in files if path.suffix == ".md"},
    }


def diagnosed(answer: Answer) -> Record:
    """Matches without their words, in order."""
    matches = (answer.document or {}).get("matches", [])
    words = ("cause", "fix", "remedy", "what", "text", "lines", "line")
    facts = [{key: value for key, value in match.items() if key not in words} for match in matches]
    return {"code": answer.code, "matches": answer.normal.value(facts)}


def logs(corpus: Corpus, _: argparse.Namespace) -> Iterator[tuple[str, Record]]:
    """The logs of known failures, and those of healthy programs."""
    for path in sorted((ROOT / "tests/logs").rglob("*.log")):
        yield str(path.relative_to(ROOT / "tests/logs")), diagnosed(corpus.call(["diagnose", str(path)]))


def lives(_: Corpus, __: argparse.Namespace) -> Iterator[tuple[str, Record]]:
    """Journals of lives: the state after each event, and what is decided there in everything that may be observed."""
    from equivalence_lives import decisions

    with lzma.open(DATA / "lives.jsonl.xz", "rt") as f:
        for line in f:
            life = json.loads(line)
            yield f"{life['source']}: {life['name']}", {"decisions": decisions(life["events"])}


SECTIONS: dict[str, Callable[[Corpus, argparse.Namespace], Iterator[tuple[str, Record]]]] = {
    "plans": plans,
    "dry_runs": dry_runs,
    "imports": imports,
    "scripts": scripts,
    "bad_inputs": bad_inputs,
    "runs": runs,
    "logs": logs,
    "lives": lives,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scripts", type=Path)
    options = parser.parse_args()
    import podwright

    tree = Path(os.environ["PYTHONPATH"])
    if not Path(podwright.__file__).is_relative_to(tree):
        raise SystemExit(f"the product is imported from {podwright.__file__}, not from {tree}")
    # its random name follows a letter, for digits behind one are no number of a page
    folder = Path(tempfile.mkdtemp(prefix="equivalence-x"))
    try:
        answers = dict(SECTIONS[options.section](Corpus(folder), options))
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    options.out.write_text(json.dumps(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
