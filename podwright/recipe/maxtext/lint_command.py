"""Findings about what the container of a MaxText recipe runs: line breaks, variables that nothing sets, words that are no flags."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.recipe.maxtext import argument_types
from podwright.recipe.maxtext.lint_finding import LintFinding
from podwright.recipe.maxtext.schema import FROM_TARGET, VARIABLE, MaxTextRecipe, command_lines, of_several_lines
from podwright.recipe.script_text import BARE, COMMENT, HEREDOC, SINGLE, contexts

_USED = re.compile(r"(?<!\\)\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(-?\}|[#%/^,:@](?![-=?+])))", re.ASCII)
"""a variable whose value is used as it is; `${NAME-}` stands for ${NAME} of the container"""
_SET = re.compile(
    r"(?:^|[\s;&|({])(?:(?:export|local|declare|readonly|typeset)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)\+?=|\bfor\s+([A-Za-z_]\w*)\s"
)
_READ = re.compile(r"\b(?:read|mapfile|readarray|printf\s+-v|getopts\s+\S+)\s+([^;&|\n]+)")
_OF_CONTAINER = re.compile(
    r"TPU_\w+|MEGASCALE_\w+|JOBSET_\w+|JOB_\w+|REPLICATED_\w+|KUBERNETES_\w+|NODE_\w+|POD_\w+|XPK_\w+|HOST|HOSTNAME|HOME|USER|PATH|PWD|OLDPWD|SHELL|TERM|"
    r"LANG|LC_\w+|TMPDIR|PYTHON\w*|LD_\w+|VIRTUAL_ENV|CONDA_\w+|RANDOM|SRANDOM|SECONDS|EPOCH\w+|LINENO|UID|EUID|PPID|BASH\w*|PIPESTATUS|"
    r"OSTYPE|IFS|HF_\w+|WANDB_\w+|GOOGLE_\w+|EXIT_CODE|_"
)
"""set by the cluster, the image or bash, or usual in the Secret of pods"""
_STARTS_AGAIN = re.compile(r"(?:&&|\|\||;)\s*(?:\w+=\S*\s+)*python[\d.]*\s+(?:-u\s+)?-m\s+\S*(?i:maxtext)\S*")
_LITERAL = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)


def check(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    yield from _line_breaks(recipe)
    yield from _syntax(recipe)
    yield from _second_training(recipe)
    yield from _unset(recipe)
    yield from _literal(recipe)
    yield from _flags(recipe)


def _line_breaks(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    for part in of_several_lines(command_lines(recipe)):
        first = part.strip().partition("\n")[0][:60]
        message = f"the container's command has several lines from {first!r} on, and render and run hand it on as one"
        yield LintFinding("line-break", "error", message, "write it on one line, with && or ; between commands")


def _syntax(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    """Shell text that takes in what stands behind it. bash itself parses the command before it is submitted."""
    for part in (*recipe.launch.setup, recipe.launch.after):
        is_open = contexts(f"{part}\n:")[-1] != BARE
        if is_open or COMMENT in contexts(part):
            fault = "a quote, $ or ` without its end" if is_open else "a comment"
            message = f"{part.strip()[:60]!r} of the container's command has {fault}, which takes in what follows"
            yield LintFinding("syntax", "error", message, "take it out or close it")


def _second_training(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    if _STARTS_AGAIN.search(recipe.launch.after):
        message = "the container trains a second time behind the first: its arguments are not checked"
        yield LintFinding("second-training", "inconclusive", message, "make a recipe of each")


def _unset(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    """Variables of the container's shell that nothing sets there: their place is empty."""
    launch = recipe.launch
    text = "\n".join([*launch.setup, launch.module, launch.base_config, launch.after])
    known = {*recipe.environment, recipe.xpk.get("env", "").partition("=")[0]}
    known |= {name for match in _SET.finditer(text) for name in match.groups() if name}
    known |= {word for match in _READ.finditer(text) for word in match[1].split()}
    kinds = contexts(text)
    unset = dict[str, None]()
    for match in _USED.finditer(text):
        name = match[1] or match[2]
        filled_in = VARIABLE.match(text, match.start())
        if (
            filled_in
            or name in known
            or kinds[match.start()] in (SINGLE, COMMENT, HEREDOC)
            or _OF_CONTAINER.fullmatch(name)
        ):
            continue
        unset[name] = None
    for name in unset:
        if name in FROM_TARGET and "env-file" not in recipe.xpk:
            message = f"the container's command uses ${name}, and the container does not have it: its place is empty"
            fix = f"type environment.{name}='${{{name}}}', which the target fills in"
            yield LintFinding("unset", "error", message, fix)
        else:
            message = f"the container's command uses ${name}, and nothing in it sets it: its place is empty, unless the image has it"
            yield LintFinding("unset", "inconclusive", message, f"type environment.{name}=VALUE")


def _literal(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    """Variables in values that no shell reads and no target fills in, so that they reach MaxText as they are written."""
    for key, value in recipe.texts.items():
        if key.startswith("launch.") or (" " in value and key != "xla_flags"):  # text of several words
            continue
        for match in _LITERAL.finditer(value):
            name = match[1] or match[2]
            # by MaxText's reader of YAML
            is_interpolated = key.startswith("arguments.") and match[1] in argument_types.types()
            if is_interpolated or VARIABLE.fullmatch(match[0]):
                continue
            message = f"{key} is {value[:80]!r}, and no shell reads it: {match[0]} is passed on as it stands"
            fix = f"write ${{{name.upper()}}} in its place, and type {name.upper()}=VALUE with render and run"
            if key == f"environment.{name}":
                fix = f"leave environment.{name} out: the container has {name} from its image or its Secret"
            yield LintFinding("literal", "error", message, fix)
            break


def _flags(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    """Words among libtpu's flags that are neither a flag nor the value of the flag before."""
    before = ""
    for word in recipe.xla_flags:
        value_of_flag = before.startswith("-") and "=" not in before
        if not word.startswith("-") and "$" not in word and not value_of_flag:
            message = f"xla_flags has {word[:60]!r}, which is no flag of libtpu: it has no effect"
            instead = f"write --{word[:60]}, or leave it out" if word else "leave it out"
            yield LintFinding("xla-flags", "error", message, instead)
        elif " " in word or "\t" in word:
            message = f"xla_flags has {word[:60]!r}, which has a blank: libtpu reads two words"
            yield LintFinding("xla-flags", "error", message, "write each flag as an entry of its own")
        before = word
