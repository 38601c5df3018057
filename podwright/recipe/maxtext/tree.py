"""Launch scripts in a checkout of recipes: which there are, which one is meant by a few words, and what lies beside one."""

from __future__ import annotations

import re
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from podwright.errors import UserError, from_os
from podwright.recipe.maxtext.script import mentions_xpk, name_of, starts_maxtext, why_unread

_STARTS = re.compile(
    r"benchmark_runner|workload\s+create-pathways|gcloud\s.*compute\s+tpus|kubectl\s+(?:apply|create)|docker\s+run|python[\d.]*\s.*train",
    re.DOTALL,
)
_FILES, _FILE_SIZE = 200, 1 << 20  # of the files beside a script: those that the evaluation by bash takes too


def text_of(path: Path) -> str:
    """The text of a script, as bash takes it: without a byte order mark, and with line ends of Unix. UserError where it cannot be read, and for a
    pipe or a device, which might never end."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{path} is no regular file", "write the script to a file and import that", "not-a-file")
        return _as_bash_takes_it(path.read_bytes())
    except UnicodeDecodeError as e:
        what = f"{path} is not text in UTF-8: byte {e.start} is 0x{e.object[e.start]:02x}"
        raise UserError(what, "save a copy as UTF-8", "not-utf8") from e
    except OSError as e:
        raise from_os(e, path) or UserError(f"{path} cannot be read: {e}", "give a bash script", "unreadable") from e


def _as_bash_takes_it(contents: bytes) -> str:
    return contents.decode("utf-8-sig").replace("\r\n", "\n")


def siblings(script: Path) -> dict[str, str]:
    """Text files beside a script by name, without hidden ones and those above 1 MiB."""
    texts = {}
    for path in sorted(script.parent.iterdir())[:_FILES]:
        if path == script or path.name.startswith(".") or path.is_symlink() or not path.is_file():
            continue
        try:
            if path.stat().st_size <= _FILE_SIZE:
                texts[path.name] = _as_bash_takes_it(path.read_bytes())
        except (OSError, UnicodeDecodeError):
            continue
    return texts


def scripts(folder: Path) -> tuple[list[Path], list[Path]]:
    """Scripts below a folder that call xpk workload create, and those that start training in another way."""
    ours = list[Path]()
    others = list[Path]()
    for path in sorted(folder.rglob("*.sh")):
        if not path.is_file() or any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        try:
            text = path.read_bytes().decode(errors="replace")
        except OSError:
            ours.append(path)  # for whom reads it, who says why it cannot be read
            continue
        if mentions_xpk(text):
            ours.append(path)
        elif _STARTS.search(re.sub(r"(?m)^[ \t]*#.*$", "", text)):
            others.append(path)
    return ours, others


def training_script(folder: Path, others: Sequence[Path]) -> Path:
    """The one script of a folder that starts MaxText itself, as a container runs it. UserError for none or several."""
    starting = [path for path in others if starts_maxtext(text_of(path))]
    if len(starting) == 1:
        return starting[0]
    if starting:
        raise UserError(
            f"{folder} has {len(starting)} training scripts",
            f"name one: {', '.join(map(str, starting[:6]))}",
            "several-recipes",
        )
    what = f"no script in {folder} calls xpk workload create or starts MaxText"
    if others:
        what = f"{others[0]} {why_unread(text_of(others[0]))}"
    raise UserError(what, "name a launch script or a configuration file", "no-call-of-xpk")


def distinct(names: Mapping[Path, str]) -> dict[Path, str]:
    """Names of recipes by their scripts, each another one: those of several scripts end in the name of the script, else in its path."""
    for ending in (lambda path: path.stem, lambda path: "-".join(path.with_suffix("").parts[-4:]), str):
        number = Counter(names.values())
        longer = {}
        for path, name in names.items():
            longer[path] = name if number[name] == 1 else f"{name}-{_plain(ending(path))}"
        names = longer
    return dict(names)


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip("-.")


def lookup(words: Sequence[str], tree: Path) -> Path:
    """The one launch script below `tree` whose path has every word, such as deepseek3, bf16 and 4x4x8. UserError for none or several."""
    names, scripts = matching(" ".join(words), tree)
    if len(scripts) == 1:
        return scripts[0]
    wanted = " ".join(words).lower()
    if not scripts:
        what = f"none of the {len(names)} launch scripts in {tree} has {' and '.join(wanted.split())} in its path"
        raise UserError(what, "leave a word out, or type --tree with a checkout of tpu-recipes", "unknown-recipe")
    what = f"{len(scripts)} launch scripts in {tree} match {wanted!r}"
    raise UserError(what, f"add a word: {', '.join([names[path] for path in scripts][:3])}", "several-recipes")


def matching(words: str, tree: Path) -> tuple[dict[Path, str], list[Path]]:
    """The launch scripts below `tree` with the names of their recipes, and those that have this name, or each of these words in their path."""
    names = distinct({path: name_of(path, "") for path in scripts(tree)[0]})
    exact = [path for path, name in names.items() if name == words.lower()]
    paths = {path: path.relative_to(tree).as_posix().lower() for path in names}
    patterns = [rf"(?:^|[^a-z0-9]){re.escape(word)}" for word in words.lower().split()]
    if exact:
        return names, exact
    return names, [path for path in names if all(re.search(each, paths[path]) for each in patterns)]
