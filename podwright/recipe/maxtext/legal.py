"""What the texts of a MaxText recipe may be, because they come to stand in shell scripts: on the machine of whoever submits, and in a pod.

Commands of the container (`launch.setup` and `launch.after`) are shell text by intent, and run in the pod alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from podwright.recipe.schema import RefusedValue

IMAGE = re.compile(
    r"[a-z0-9][a-z0-9._-]*(?::\d+)?(?:/[a-z0-9][a-z0-9._-]*)*(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?", re.ASCII
)
VERSION = re.compile(r"[a-z0-9][\w.+/-]*(?: \([\w.+/:, -]*\))?", re.ASCII | re.IGNORECASE)
_BRACED = re.compile(r"\$\{[A-Za-z_]\w*-?\}", re.ASCII)
_PATH = re.compile(r"[\w./+@:-]+", re.ASCII)
_WORDS = re.compile(r"[\w./+@:=,%-]+(?: [\w./+@:=,%-]+)*", re.ASCII)
_PATTERNS = {
    "name": (re.compile(r"[a-z0-9][\w. +-]*", re.ASCII | re.IGNORECASE), "a name", "letters, digits, dots and dashes, such as name=llama-8b"),
    "image": (IMAGE, "an image", "image=us-docker.pkg.dev/PROJECT/REPOSITORY/maxtext:TAG, in small letters"),
    "launch.module": (_PATH, "a module or a file", "letters, digits, dots and slashes, such as launch.module=MaxText.train"),
    "launch.base_config": (_PATH, "a file", "launch.base_config=MaxText/configs/base.yml"),
    "launch.python": (_WORDS, "a program with its options", "words without quotes and without marks of a shell, such as launch.python=python3"),
}  # fmt: skip
_OPTIONAL = ("launch.base_config",)
_SHELL_TEXT = ("launch.setup", "launch.after")
_KEYS = {
    "environment": (re.compile(r"[a-z_]\w*", re.ASCII | re.IGNORECASE), "name of a variable", "letters, digits and _, beginning with a letter"),
    "xpk": (re.compile(r"[a-z][a-z0-9-]*"), "option of xpk", "an option without its dashes, in small letters, such as xpk.max-restarts=0"),
    "arguments": (re.compile(r"(?:--?)?[a-z_][\w.-]*", re.ASCII | re.IGNORECASE), "key of MaxText", "letters, digits and _, such as arguments.steps=30"),
}  # fmt: skip


def require(raw: Mapping[str, Any]) -> None:
    """RefusedValue for the first text of a recipe, as `model_dump` has it, that is no such thing or has a control character."""
    for key, text in _texts(raw):
        _require_printable(key, text)
    for section, (pattern, thing, fix) in _KEYS.items():
        for key in raw[section]:
            if not pattern.fullmatch(key):
                raise RefusedValue(f"{section}.{key} is no {thing}", f"write {fix}")
    if raw["xla_flags"] and "LIBTPU_INIT_ARGS" in raw["environment"]:
        what = "environment.LIBTPU_INIT_ARGS would be overwritten: it is made of xla_flags"
        raise RefusedValue(what, "write its flags into xla_flags")
    texts = dict(_texts(raw))
    for key, (pattern, thing, fix) in _PATTERNS.items():
        text = texts[key] if key == "name" else _BRACED.sub("x", texts[key])
        if not pattern.fullmatch(text) and not (text == "" and key in _OPTIONAL):
            raise RefusedValue(f"{key}={texts[key]} is not {thing}", f"write {fix}")
    for library, version in raw["versions"].items():
        if version and not VERSION.fullmatch(version):
            what = f"versions.{library}={version} is no version"
            raise RefusedValue(what, f"write a release, a tag or a commit, such as versions.{library}=1.2.3")


def _texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _texts(entry, f"{key}.{name}" if key else name)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _texts(entry, key)


def _require_printable(key: str, text: str) -> None:
    allowed = "\n\t" if key in _SHELL_TEXT else ""
    for each in (key, text):
        wrong = next((c for c in each if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in allowed), "")
        if wrong:
            thing = "a line break" if wrong in "\n\r\x85\u2028\u2029" else f"the control character {wrong!r}"
            what = f"{key.encode('unicode_escape').decode()}={text[:60]!r} has {thing}"
            raise RefusedValue(what, "write it on one line, without control characters")
