"""The documentation against the code: pages made from it are current, commands parse, links lead somewhere, the tree is true."""

import importlib.util
import json
import re
import shlex
import statistics
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from podwright import slices, targets
from podwright.accelerators import GPUS, TPUS
from podwright.cli import app
from podwright.plan.make import make
from podwright.plan.options import Destination
from podwright.recipe import load
from podwright.recipe.kinds import KINDS
from podwright.run.states import ENDINGS
from tests import source_texts
from tests.unit.recipe.maxtext import example

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
FIRST_PAGES = [ENGLISH, ROOT / "docs" / "install.md"]
NAMES = ("tunix", "ALModel", "KDA", "MLA", "PurrSight", "Phase 1", "Phase 2", "the source")
PHRASES = re.compile(
    r"\bmend(?:s|ed)?\b|\bgo(?:es)? on from\b|\bgo on with\b|\bnobody (?:said|knows|tells|can tell)\b|\bwhat comes of\b"
    r"|\bwhat (?:it|they) came to\b|\bhow (?:it|they) stands?\b|\bcommonest\b|\bits own death\b|\bfigures? of ours\b"
    r"|\bliving trainer\b|\bstands against\b|\bwithout contents\b|\btold from\b|\bleads? nowhere\b|\bany more\b|\bheld against nothing\b"
    r"|\bnot plausibly chance\b|\bmade here\b",
    re.IGNORECASE,
)
REMAKE = "type `.venv/bin/python docs/help.py --all`"

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# In prose a command may be a pattern (`podwright VERB --help`); only those that name a verb are checked.
INLINE = re.compile(r"`(podwright [a-z][^`]*)`")
PLACEHOLDERS = {"RECIPE", "RUN", "NAME"}


def made() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_help", ROOT / "docs" / "help.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HELP = made()
VERBS = HELP.verbs()


def blocks(page: Path, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(page.read_text()) if language in languages]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def test_help_is_current_and_has_every_verb() -> None:
    page = (ROOT / "docs" / "help.md").read_text()
    assert page == HELP.help_page(), REMAKE
    for words in VERBS:
        assert f"## podwright {words}\n" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_made_parts_are_current(page: Path) -> None:
    assert page.read_text() == HELP.brought_up_to_date(page.read_text()), REMAKE


def test_every_made_part_stands_on_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert not [name for name in HELP.PARTS if f"<!-- made: {name} -->" not in text]


def test_every_key_and_ending_is_explained() -> None:
    keys = (ROOT / "docs" / "recipes.md").read_text()
    assert not [key for key in load.fields(KINDS["grpo"].schema) if f"| `{key}` |" not in keys]
    states = (ROOT / "docs" / "states.md").read_text()
    assert not [ending for ending in ENDINGS if f"| `{ending}` |" not in states]


def test_every_metric_of_the_contract_is_explained() -> None:
    row = next(
        line for line in (ROOT / "docs" / "contract.md").read_text().splitlines() if line.startswith("| `grpo` |")
    )
    page = (ROOT / "docs" / "grpo.md").read_text()
    figures = set(re.findall(r"`([a-z_/A-Z]+)`", row)) - {"grpo"}
    assert len(figures) > 20
    assert not [name for name in figures if f"`{name}`" not in page]


def commands() -> Iterator[tuple[str, str]]:
    """(page, command) of every `podwright ...` in a shell block or in prose."""
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        lines = "".join(blocks(page, "sh", "bash", "console")).replace("\\\n", " ").splitlines()
        yield from ((name, line.strip()) for line in lines if line.strip().startswith("podwright "))
        yield from ((name, found) for found in INLINE.findall(prose(page)))


COMMANDS = sorted(set(commands()))


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 40


@pytest.fixture
def own_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the pages show."""
    file = tmp_path / "targets.yaml"
    file.write_text(
        "".join(
            text for page in ("slurm", "ssh", "tpu_vm", "gke") for text in blocks(ROOT / "docs" / f"{page}.md", "yaml")
        )
    )
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(file))


@pytest.mark.usefixtures("own_targets")
@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_parse(page: str, command: str) -> None:
    words = app.words(shlex.split(command)[1:])
    verb = " ".join(words[:2]) if " ".join(words[:2]) in VERBS else words[0]
    assert verb in VERBS, f"{page}: there is no verb {verb}"
    rest = words[len(verb.split()) :]
    if not rest:  # the verb is only named
        return
    parsed = VERBS[verb].make_context(f"podwright {verb}", rest).params
    if parsed.get("on"):
        searched = parsed.get("fit") and parsed["on"] in {row.name for row in (*TPUS, *GPUS)}
        assert (
            searched
            or parsed["on"] == "local"
            or (slices.parse(parsed["on"]) if verb == "plan" else targets.resolve(parsed["on"]).traits)
        )
    if parsed.get("recipe") and parsed["recipe"] not in PLACEHOLDERS:
        # A recipe of the reader's own is not here; what is typed after it has to fit one of ours.
        if page == "docs/maxtext.md":
            load.override(example.example(), parsed.get("overrides") or [])
            return
        own = parsed["recipe"].endswith(".yaml")
        load.load("qwen3-tiny-arithmetic-grpo" if own else parsed["recipe"], parsed.get("overrides") or [])


def anchors(page: Path) -> set[str]:
    """As GitHub makes them out of headings."""
    texts = [text.replace("`", "").lower() for _, text in HEADING.findall(prose(page))]
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        place, _, anchor = link.partition("#")
        there = (page.parent / place) if place else page
        assert there.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(there), f"{page.name}: {link}"


def test_the_index_has_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    assert {page.name for page in index.parent.glob("*.md")} == {"README.md", *LINK.findall(index.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_that_are_named_exist(page: Path) -> None:
    named = re.findall(r"`((?:podwright|tests|lab|docs|recipes|bench)/[\w./-]+)`", prose(page))
    assert not [name for name in named if not (ROOT / name).exists()]


def tree(page: Path) -> list[str]:
    """Paths that the tree of a page names; two blanks of indentation are one level."""
    block = next(body for body in blocks(page, "text") if body.startswith("podwright/\n"))
    found: list[str] = []
    above: list[str] = []
    for line in block.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        above = [*above[:depth], line.split()[0]]
        found.append("".join(above))
    return found


def test_the_tree_is_true() -> None:
    named = tree(ROOT / "CONTRIBUTING.md")
    assert not [name for name in named if not (ROOT / name).exists() or name.endswith("/") != (ROOT / name).is_dir()]
    folders = [f"podwright/{d.name}/" for d in (ROOT / "podwright").iterdir() if d.is_dir() and any(d.glob("*.py"))]
    assert not set(folders) - set(named), "a part of podwright/ is not in the tree of CONTRIBUTING.md"


def test_every_verb_is_in_the_readme() -> None:
    text = ENGLISH.read_text()
    assert not [words for words in VERBS if " " not in words and f"| `{words}` |" not in text]


def test_a_newcomer_needs_two_commands() -> None:
    typed = [line for body in blocks(ENGLISH, "sh") for line in body.splitlines() if line.startswith("make")]
    assert typed == ["make demo", "make test"]
    assert set(re.findall(r"\bmake [a-z-]+", prose(ENGLISH))) <= {"make demo", "make test"} | {
        "make certain",
        "make sure",
    }


def test_the_quick_start_installs_plans_and_runs_with_the_same_keys() -> None:
    """In this order; and its plan finds no program that is too large for the card, or too near to its limit."""
    (lines,) = [body.splitlines() for body in blocks(ENGLISH, "sh") if "--on 1x" in body]
    install, plan, run = (
        next(i for i, line in enumerate(lines) if line.startswith(words))
        for words in ("pip install ", "podwright plan ", "podwright run ")
    )
    assert install < plan < run
    typed, on = lines[plan].removeprefix("podwright plan ").split(" --on ")
    assert typed == lines[run].removeprefix("podwright run ")
    name, *keys = typed.split()
    drawn = ["model.source=random", "data.source=arithmetic", "data.num_train=7473", "data.num_test=1319"]
    recipe = load.load(name, [key for key in keys if ".source=" not in key] + drawn)
    planned = make(recipe, Destination(on, slices.parse(on)))
    assert [f.level for f in planned.findings if f.check == "memory"] == ["info"]
    assert planned.step


def test_the_chinese_readme_keeps_step() -> None:
    one, other = ([len(marks) for marks, _ in HEADING.findall(prose(page))] for page in (ENGLISH, CHINESE))
    assert one == other
    assert blocks(ENGLISH, "sh") == blocks(CHINESE, "sh")
    assert re.findall(r"<!-- .+? -->", ENGLISH.read_text()) == re.findall(r"<!-- .+? -->", CHINESE.read_text())
    links = [[link.partition("#")[0] for link in LINK.findall(page.read_text())] for page in (ENGLISH, CHINESE)]
    assert links[0] == links[1]
    assert sorted(re.findall(r"`[^`]+`", prose(ENGLISH))) == sorted(re.findall(r"`[^`]+`", prose(CHINESE)))


def rows(page: Path) -> list[str]:
    return [line for line in prose(page).splitlines() if line.startswith("|")]


def test_the_chinese_readme_has_the_same_tables_and_figures() -> None:
    """Each row has the same number of cells, the same figures and the same code."""
    assert len(rows(ENGLISH)) == len(rows(CHINESE))
    for row, translated in zip(rows(ENGLISH), rows(CHINESE), strict=True):
        assert row.count("|") == translated.count("|"), translated
        for part in (r"\d[\d.,]*\d|\d", r"`[^`]+`"):
            assert sorted(re.findall(part, row)) == sorted(re.findall(part, translated)), translated


def sentences(page: Path) -> list[str]:
    """Of paragraphs, list items and table cells; code and links count as one word each."""
    text = re.sub(r"<!--.*?-->|!\[.*?\]\(.*?\)", "", prose(page))
    text = re.sub(r"`[^`]+`", "code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
    text = re.sub(r"\n(?=[-|#]|\d+\. )|\|", "\n\n", text)
    parts = [part for block in text.split("\n\n") for part in re.split(r"(?<=[.:;?])\s+", " ".join(block.split()))]
    return [part for part in parts if len(part.split()) > 2]


@pytest.mark.parametrize("page", FIRST_PAGES, ids=lambda p: p.name)
def test_sentences_of_the_first_pages_are_short(page: Path) -> None:
    lengths = [len(sentence.split()) for sentence in sentences(page)]
    assert len(lengths) > 20
    assert statistics.median(lengths) < 15


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_sentence_is_longer_than_35_words(page: Path) -> None:
    assert not [sentence for sentence in sentences(page) if len(sentence.split()) > 35]


@pytest.mark.parametrize("page", [ENGLISH, CHINESE], ids=lambda p: p.name)
def test_names_are_introduced_before_they_are_used(page: Path) -> None:
    """The first line with a name is the row that says what it is."""
    lines = page.read_text().splitlines()
    for name in NAMES:
        name = "来源" if page == CHINESE and name == "the source" else name
        first = next(line for line in lines if name in line)
        assert name in first.split("|")[1], first
    method = next(line for line in lines if "GRPO" in line)
    assert re.search(r"GRPO\W+\(|GRPO\*\*（", method), method


def test_the_readme_says_which_published_runs_calibrated_the_step_time() -> None:
    newest = sorted((ROOT / "bench" / "results").glob("plan_roofline-*.json"))[-1]
    published = json.loads(newest.read_text())["rows"]
    used = Counter(row["use"] for row in published)
    text = " ".join(ENGLISH.read_text().split())
    said = re.search(
        r"Of the (\d+) published runs, (\d+) calibrated .*? Another (\d+) were compared .*? other (\d+)", text
    )
    assert said
    assert [int(number) for number in said.groups()] == [
        len(published), used["calibration"], used["checked"], used["unseen"],
    ]  # fmt: skip
    assert all(abs(row["ratio"] - 1) < 0.0255 for row in published)


def test_every_extra_that_is_named_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = [*PAGES, *(ROOT / "podwright").rglob("*.py")]
    named = {
        (path.name, extra)
        for path in sources
        for group in re.findall(r"-e ['\"]\.\[([\w,-]+)\]", path.read_text())
        for extra in group.split(",")
    }
    assert len(named) > 10
    assert not [pair for pair in named if pair[1] not in extras]
    table = (ROOT / "docs" / "install.md").read_text()
    assert not [extra for extra in extras if f"`{extra}`" not in table]


def test_pages_and_messages_use_the_words_of_the_field() -> None:
    texts = [(page, page.read_text()) for page in PAGES if page.name not in ("CHANGELOG.md", "log.md")]
    texts += [(path, path.read_text()) for path in (ROOT / "podwright" / "report" / "templates").iterdir()]
    texts += [(path, text) for path in (ROOT / "podwright").rglob("*.py") for text in source_texts.strings(path)]
    texts += [(path, path.read_text()) for path in (ROOT / "recipes").glob("*.yaml")]
    assert len(texts) > 3000
    assert not [f"{path.name}: {phrase[0]}" for path, text in texts if (phrase := PHRASES.search(text))]


def test_every_test_that_is_named_is_there() -> None:
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "lab").rglob("test_*.py")]
    there = {name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)} | {
        p.stem for p in files
    }
    pages = [ENGLISH, CHINESE, *(ROOT / "docs").glob("*.md")]
    assert not [
        f"{page.name}: {name}"
        for page in pages
        for name in re.findall(r"\btest_\w+", page.read_text())
        if name not in there
    ]


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_nothing_of_a_machine_is_in_the_files() -> None:
    """No absolute path of somebody's home or checkout, no package index but the public one."""
    home = re.compile(r"(?<![\w.:/])/(?:home|root|Users|work|mnt|srv|scratch)/\w")
    index = re.compile(
        r"--(?:extra-)?index-url|--trusted-host|https?://[^\s/\"')]+/(?:[\w.-]+/)*simple\b", re.IGNORECASE
    )
    wrong = []
    for path in tracked():
        if path == Path(__file__).resolve():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        wrong += [
            f"{path.relative_to(ROOT)}: {found[0]}" for pattern in (home, index) if (found := pattern.search(text))
        ]
    assert not wrong
