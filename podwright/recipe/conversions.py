"""Lines in the layouts of other programs, and what to type to convert a file of them.

A command is one line of Python that needs no package, so that it runs wherever Podwright does. A file may have lines of several
layouts: a command converts those of one and writes the others as they are, so that the next check names what is left.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from podwright.recipe.text_lines import through

_PAIRED = {
    **dict.fromkeys(("caption", "description", "sentence", "label", "title"), "text"),
    **dict.fromkeys(("image_path", "img", "picture", "file_name"), "image"),
    **dict.fromkeys(("audio_path", "sound", "wav"), "audio"),
    **dict.fromkeys(("video_path", "clip"), "video"),
}


def to_pairs(file: str, row: Any) -> str:
    """What to type for a file whose lines have keys that Phase 1 has other names for; "" where there are none."""
    names = paired_keys(row)
    if not names:
        return ""
    keys = json.dumps(names, separators=(",", ":"))
    return _converted(file, f"{{(k if {keys}.get(k,k) in r else {keys}[k]):v for k,v in r.items()}}")


def to_responses(file: str) -> str:
    """What to type for a file of annotated lines whose `response` is an object and not its JSON as a text."""
    return _converted(file, '{**r,"response":json.dumps(r["response"])} if isinstance(r.get("response"),dict) else r')


def paired_keys(row: Any) -> dict[str, str]:
    """Keys of a row that stand for a field of Phase 1 -> that field; none for a field that the row has."""
    if not isinstance(row, dict):
        return {}
    names: dict[str, str] = {}
    for key, field in _PAIRED.items():
        if _is_text(row.get(key)) and field not in row and field not in names.values():
            names[key] = field
    return names


def _converted(file: str, expression: str) -> str:
    """Each line `r` of a file as what an expression in Python makes of it."""
    code = f'import json,sys; [print(json.dumps({expression})) for l in open(sys.argv[1],"rb") if l.strip() for r in [json.loads(l)]]'
    return through(file, f"python3 -c {shlex.quote(code)}", "lines")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
