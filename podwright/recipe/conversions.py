"""Lines in the layouts of other programs, and what to type to convert a file of them.

Chat lines have `messages` of {role, content}, ShareGPT's `conversations` of {from, value}; Alpaca's have `instruction`, `input` and `output`.
A command is one line of Python that needs no package, so that it runs wherever Podwright does. A file may have lines of several
layouts: a command converts those of one and writes the others as they are, so that the next check names what is left.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from podwright.recipe.text_lines import through

_IN_TEXT = (
    *("instruction", "input", "question", "prompt", "content"),
    *("answer", "response", "completion", "solution", "output"),
)
"""keys whose texts, in this order, make a text to pretrain on"""
_CHATS = (("messages", "role", "content", "user"), ("conversations", "from", "value", "human"))
"""key of the turns; in a turn the keys of speaker and text, and who asks"""


def to_text(file: str, row: Any) -> str:
    """What to type for a file with such rows, so that pretraining can read it; "" where there is no conversion."""
    if chat := _chat(row):
        key, _, text, _ = chat
        joined = f'"\\n\\n".join(x["{text}"] for x in r["{key}"] if x.get("{text}"))'
        return _converted(file, f'{{"text":{joined}}} if r.get("{key}") and not r.get("text") else r')
    if not isinstance(row, dict):
        return ""
    if not any(_is_text(row.get(k)) for k in _IN_TEXT):
        return ""
    # "input" is empty or left out in lines of Alpaca, the first one perhaps among them
    keys = [k for k in _IN_TEXT if isinstance(row.get(k), str) or (k == "input" and "instruction" in row)]
    listed = json.dumps(keys, separators=(",", ":"))
    joined = f'"\\n\\n".join(r[k] for k in {listed} if r.get(k))'
    return _converted(file, f'{{"text":{joined}}} if any(map(r.get,{listed})) and not r.get("text") else r')


def _chat(row: Any) -> tuple[str, str, str, str] | None:
    """The layout of a row's turns, where somebody asks in them and all are text."""
    for layout in _CHATS:
        key, speaker, text, asker = layout
        turns = row.get(key) if isinstance(row, dict) else None
        if not isinstance(turns, list) or not all(isinstance(t, dict) and _is_text(t.get(text)) for t in turns):
            continue
        if any(t.get(speaker) == asker for t in turns):
            return layout
    return None


def _converted(file: str, expression: str) -> str:
    """Each line `r` of a file as what an expression in Python makes of it."""
    code = f'import json,sys; [print(json.dumps({expression})) for l in open(sys.argv[1],"rb") if l.strip() for r in [json.loads(l)]]'
    return through(file, f"python3 -c {shlex.quote(code)}", "lines")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
