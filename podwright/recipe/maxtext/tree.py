"""Launch scripts in a checkout of recipes: which there are, which one is meant by a few words, and what lies beside one."""

from __future__ import annotations

import re
import shlex
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from podwright.errors import UserError, from_os
from podwright.recipe.maxtext.script import mentions_xpk, name_of, starts_maxtext

_STARTS = re.compile(
    r"benchmark_runner|gcloud\s.*compute\s+tpus|kubectl\s+(?:apply|create)|docker\s+run|python[\d.]*\s.*train",
    re.DOTALL,
)
_FILES, _FILE_SIZE = 200, 1 << 20  # of the files beside a script: those that the evaluation by bash takes too


def text_of(path: Path) -> str:
    """The text of a script, as bash takes it: without a byte order mark, and with line ends of Unix. UserError where it cannot be read, and for a
    pipe or a device, which might never end."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{path} is no regular file", "write the script to a file and import that")
        return _as_bash_takes_it(path.read_bytes())
    except UnicodeDecodeError as e:
        what = f"{path} is not text in UTF-8: byte {e.start} is 0x{e.object[e.start]:02x}"
        raise UserError(
            what, f"type iconv -f latin1 -t utf-8 {shlex.quote(str(path))} > COPY.sh, if it is Latin-1"
        ) from e
    except OSError as e:
        raise from_os(e, path) or UserError(f"{path} cannot be read: {e}", "give a bash script") from e


def _as_bash_takes_it(contents: bytes) -> str:
    return contents.decode("utf-8-sig").replace("\r\n", "\n")


def code_of(path: Path) -> str:
    """The text of a script, whatever its encoding is, to look for the names of programs in it. OSError where it cannot be read."""
    return path.read_bytes().decode(errors="replace")


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
    ours, others = list[Path](), list[Path]()
    for path in sorted(folder.rglob("*.sh")):
        if not path.is_file() or any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        try:
            text = code_of(path)
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
            f"{folder} has {len(starting)} training scripts", f"name one: {', '.join(map(str, starting[:6]))}"
        )
    raise UserError(
        f"no script in {folder} calls xpk workload create or starts MaxText",
        "name a launch script or a configuration file",
    )


def named_scripts(tree: Path) -> dict[Path, str]:
    """The launch scripts below `tree`, and how their recipes are called."""
    return distinct({path: name_of(path, "") for path in scripts(tree)[0]})


def distinct(names: Mapping[Path, str]) -> dict[Path, str]:
    """Names of recipes by their scripts, each another one: those of several scripts end in the name of the script, else in its path."""
    for ending in (lambda path: path.stem, lambda path: "-".join(path.with_suffix("").parts[-4:]), str):
        number = Counter(names.values())
        names = {path: name if number[name] == 1 else f"{name}-{_plain(ending(path))}" for path, name in names.items()}
    return dict(names)


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip("-.")


def lookup(words: Sequence[str], tree: Path) -> Path:
    """The one launch script below `tree` whose path has every word, such as deepseek3, bf16 and 4x4x8. UserError for none or several."""
    listed = named_scripts(tree)
    wanted = " ".join(words).lower()
    matching = [path for path in listed if all(has_word(path.relative_to(tree), word) for word in wanted.split())]
    exact = [path for path in listed if listed[path] == wanted]
    if len(exact) == 1 or len(matching) == 1:
        return (exact or matching)[0]
    if not matching:
        shared = {path: sum(has_word(path.relative_to(tree), word) for word in wanted.split()) for path in listed}
        most = next(filter(_is_readable, sorted(listed, key=lambda path: -shared[path])), None)
        what = f"none of the {len(listed)} launch scripts in {tree} has {' and '.join(wanted.split())} in its path"
        raise UserError(
            what, f"the nearest is {listed[most]}" if most else "type --tree with a checkout of tpu-recipes"
        )
    names = proposed(matching, listed)
    shown = "; ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    raise UserError(f"{len(matching)} recipes in {tree} match {wanted!r}", f"add a word: {shown}")


def proposed(paths: Sequence[Path], names: Mapping[Path, str]) -> list[str]:
    """Names of the scripts that can be read, or of all where none can."""
    return [names[path] for path in paths if _is_readable(path)] or [names[path] for path in paths]


def _is_readable(path: Path) -> bool:
    """Whether a launch script seems to train with MaxText."""
    try:
        return starts_maxtext(text_of(path))
    except UserError:
        return False


def has_word(path: Path, word: str) -> bool:
    """Whether a part of a path begins with a word."""
    return re.search(rf"(?:^|[^a-z0-9]){re.escape(word)}", path.as_posix().lower()) is not None
