"""Whether a reward's file exists and defines the function with the right signature. The file is read, never run."""

from __future__ import annotations

import ast
import copy
import inspect
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path
from textwrap import shorten

from podwright.errors import expanded, nearest
from podwright.plan.findings import Finding
from podwright.recipe import reward_call
from podwright.recipe.schema import GrpoData

_FORMAT_REWARD = "podwright.train.grpo.reward:format_reward"
_SIGNATURE = "def {}(prompts, completions, **columns)"


def rewards(reference: str, cwd: Path) -> list[Finding]:
    """`reference` is 'package.module:function' or 'file.py:function'."""
    place, _, name = reference.rpartition(":")
    if not place or not name.isidentifier():
        return [_error(f"reward {reference!r} names no function", "write file.py:function or package.module:function")]
    if place.endswith(".py"):
        path = cwd / expanded(place)
        return (
            _function(path, name) if path.is_file() else [_error(f"there is no reward file {place}", "check the path")]
        )
    package = place.split(".")[0]
    if _module(package, cwd) is None:
        what = f"reward module {place} is not installed here, so it was not checked"
        return [Finding("rewards", "inconclusive", what, f"install {package}, or name a file", "not-installed")]
    module = _module(place, cwd)
    if module is None:
        return [_error(f"there is no reward module {place}", f"check the spelling; {package} is there")]
    findings = _function(module, name)
    if module.is_relative_to(cwd):
        return findings
    # nobody is told to edit a module of others
    fix = f"name a function in a file of yours, file.py:{name}, that begins `{_SIGNATURE.format(name)}`"
    replaced = []
    for finding in findings:
        if finding.level == "error" and "did you mean" not in finding.fix:
            finding = replace(finding, fix=fix)
        replaced.append(finding)
    return replaced


def thoughts(reference: str, data: GrpoData) -> list[Finding]:
    """With thinking off Qwen3's template opens and closes an empty thought in the prompt, so completions begin after it."""
    if data.enable_thinking is not False or reference != _FORMAT_REWARD:
        return []
    what = "format_reward looks for <think> in completions, which data.enable_thinking=false puts into the prompt"
    fix = "type data.enable_thinking=true, or take format_reward out of rewards"
    return [Finding("rewards", "warning", what, fix, "no-effect")]


def _module(dotted: str, cwd: Path) -> Path | None:
    """The source file of a module, found without importing it or its packages."""
    where: list[str] | None = None
    parts = dotted.split(".")
    for n in range(len(parts)):
        name = ".".join(parts[: n + 1])
        spec = PathFinder.find_spec(name, where)
        if not spec and n == 0:
            spec = PathFinder.find_spec(name, [str(cwd)])
        if spec is None:
            return None
        where = list(spec.submodule_search_locations or [])
    if spec and spec.origin:
        return Path(spec.origin)
    return Path(where[0]) if where else None


def _parsed(text: str, name: str) -> ast.Module:
    """SyntaxError for what is not Python."""
    try:
        return ast.parse(text, name)
    except SystemError:  # of CPython before 3.12.9, where another thread parses too (gh-106905)
        return ast.parse(text, name)


def _function(path: Path, name: str) -> list[Finding]:
    try:
        body = _parsed(path.read_text(), str(path)).body
    except (SyntaxError, UnicodeDecodeError, OSError) as e:
        line = f" line {e.lineno}" if isinstance(e, SyntaxError) else ""
        return [_error(f"{path}{line} is not Python: {getattr(e, 'msg', e)}", "fix that line")]
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    if name in functions:
        return _signature(path, functions[name])
    if name in _other_names(body):
        what = f"{name} in {path} is not defined by `def`; its signature is seen when the run starts"
        return [Finding("rewards", "inconclusive", what, f"write `{_SIGNATURE.format(name)}`", "not-a-function")]
    guess = nearest(name, list(functions))
    fix = f"did you mean {guess}?" if guess else f"add `{_SIGNATURE.format(name)}`"
    return [_error(f"{path} defines no function {name!r}", fix)]


def _signature(path: Path, function: ast.FunctionDef) -> list[Finding]:
    try:
        reward_call.bind(_as_called(function.args))
    except TypeError as e:
        arguments = shorten(ast.unparse(function.args), 60, placeholder=" ...")
        what = f"{path}:{function.lineno}: `def {function.name}({arguments})` cannot be a reward: {e}"
        return [_error(what, f"write `{_SIGNATURE.format(function.name)}`")]
    return []


def _as_called(arguments: ast.arguments) -> inspect.Signature:
    """What Python makes of them, without annotations and the values of defaults: nothing of the file is run."""
    bare = copy.deepcopy(arguments)
    for node in ast.walk(bare):
        if isinstance(node, ast.arg):
            node.annotation = None
    bare.defaults = [ast.Constant(None) for _ in bare.defaults]
    bare.kw_defaults = [default and ast.Constant(None) for default in bare.kw_defaults]
    function = ast.fix_missing_locations(ast.Expression(ast.Lambda(bare, ast.Constant(None))))
    return inspect.signature(eval(compile(function, "", "eval")))


def _other_names(body: list[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.Assign):
            names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def _error(message: str, fix: str) -> Finding:
    return Finding("rewards", "error", message, fix, "no-reward")
