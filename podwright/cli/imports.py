"""The verb `podwright recipe import`: which importer a file is for, and what is printed."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from podwright.cli import show
from podwright.errors import UserError, counted, expanded
from podwright.importers import config_files
from podwright.importers.config_files import Imported
from podwright.recipe import load, yaml_file
from podwright.recipe.maxtext import given_values, launch_config, lint, script, tree
from podwright.recipe.maxtext.imported import ImportedScript
from podwright.recipe.maxtext.lint_finding import LintFinding
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.rundir import Record
from podwright.sandbox import read

_SUFFIXES = (".yaml", ".yml", ".sh")


@dataclass(frozen=True)
class ImportRequest:
    """What was typed."""

    words: list[str]
    """a path, or words that stand in the path of one launch script of a tree"""
    pairs: list[str]
    """KEY=VALUE"""
    tree: Path | None
    out: Path | None
    phase: int | None
    as_json: bool
    trust: bool = False

    @property
    def overrides(self) -> list[str]:
        """Pairs that change keys of the recipe."""
        return given_values.overrides(self.pairs)

    @property
    def xpk_version(self) -> str:
        """That was typed; ""."""
        return dict(pair.partition("=")[::2] for pair in self.overrides).get("versions.xpk", "")


def run(request: ImportRequest) -> None:
    place = expanded(request.words[0])
    if len(request.words) > 1 or not place.exists():
        place = tree.lookup(request.words, _tree(request, place))
    other_scripts = list[Path]()
    if place.is_dir():
        scripts, others = tree.scripts(place)
        if len(scripts) > 1:
            return _all(request, place, scripts, others)
        place = (scripts or [tree.training_script(place, others)])[0]
        other_scripts = [path for path in others if path != place and path.name not in tree.text_of(place)]
    kind = _kind_of(place)
    if kind == "config":
        return _target(request, place)
    if kind == "script":
        return _script(request, place, other_scripts)
    imported = config_files.imported(place, request.phase, request.pairs)
    out = _written(imported.recipe, request.out or place.with_name(f"{imported.recipe['name']}.recipe.yaml"))
    command = ["podwright", "run", str(out)]
    _show(request, imported, out, command)


def _tree(request: ImportRequest, place: Path) -> Path:
    """Where words are looked up. UserError for a path that does not exist."""
    first = request.words[0]
    if len(request.words) == 1 and ("/" in first or place.suffix in _SUFFIXES):
        raise UserError(f"there is no file {first}", "check the path", "no-such-file")
    if request.tree is None:
        return tree_of_target() or Path()
    if not request.tree.is_dir():
        raise UserError(
            f"--tree {request.tree} is no directory", "give the path of a checkout of tpu-recipes", "not-a-folder"
        )
    return request.tree


def tree_of_target() -> Path | None:
    """The one checkout that targets of kind gke name as `recipes`; an entry that is wrong is left out."""
    from podwright.targets import entries

    named = set[str]()
    for name in entries.names():
        with contextlib.suppress(UserError):
            named.add(getattr(entries.find(name), "recipes", ""))
    named.discard("")
    return expanded(named.pop()) if len(named) == 1 else None


def _kind_of(path: Path) -> str:
    """By its content: a launch script, a configuration for launching, or a file of tunix or PurrSight."""
    text = tree.text_of(path)
    if path.suffix == ".sh" or text.startswith("#!") or script.mentions_xpk(text):
        return "script"
    raw = yaml_file.read(path, config_files.IMPORTABLE)
    if not launch_config.recognised(raw):
        return "yaml"
    owners = ["a launch configuration (cluster_name)", *config_files.owners_of(raw)]
    config_files.require_single_owner(path, owners)
    return "config"


def _values(pairs: Sequence[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair or pair.startswith("="):
            raise UserError(
                f"{pair!r} sets nothing",
                "write NAME=VALUE, for example BASE_OUTPUT_DIR=gs://bucket/runs",
                "sets-nothing",
            )
        given_values.require_settable(pair.partition("=")[0])
    from podwright.shell import user

    return {"USER": user(), "HOME": str(Path.home())} | dict(
        pair.partition("=")[::2] for pair in pairs if pair not in given_values.overrides(pairs)
    )


def _texts(path: Path) -> list[str]:
    """Of a script and of the scripts beside it, which it may source."""
    siblings = {name: text for name, text in tree.siblings(path).items() if not name.lower().endswith(".md")}
    return [tree.text_of(path), *siblings.values()]


def _unused(path: Path, values: Mapping[str, str], result: ImportedScript) -> list[str]:
    names = given_values.unused(_texts(path), values)
    if result.argv:
        return names
    return [name for name in names if name not in ("topology", "num_slices", "NUM_SLICES")]


def _recipe(request: ImportRequest, result: ImportedScript) -> MaxTextRecipe:
    """Of a script, with what was typed for the recipe."""
    before = load.parse(result.recipe)
    given_values.require_options(request.pairs, request.xpk_version or result.recipe["versions"].get("xpk", ""))
    recipe = load.require(load.override(before, request.overrides), MaxTextRecipe)
    described = read.described(recipe.arguments, recipe.launch.module, recipe.topology)
    return recipe.model_copy(update={"description": described})


def recipe_of(path: Path) -> MaxTextRecipe:
    """Of the launch script `path`, read as `recipe import` reads it without values. UserError as there."""
    result = _read(path, _values(()))
    return load.require(load.parse(result.recipe), MaxTextRecipe)


def _read(path: Path, values: Mapping[str, str], xpk_version: str = "", trust: bool = False) -> ImportedScript:
    now = datetime.now().astimezone()
    return read.read(path, tree.text_of(path), values, now, tree.siblings(path), xpk_version, trust)


def _script(request: ImportRequest, path: Path, other_scripts: Sequence[Path] = ()) -> None:
    """`other_scripts`: scripts of the same folder that start training too, and that `path` does not run."""
    if request.phase is not None:
        raise UserError(
            f"{path} is a launch script, which has no phases", f"leave --phase {request.phase} out", "wrong-kind"
        )
    values = _values(request.pairs)
    result = _read(path, values, request.xpk_version, request.trust)
    unused = {name: values[name] for name in _unused(path, values, result)}
    given_values.refuse(path, unused, _texts(path), result.recipe["arguments"])
    recipe = _recipe(request, result)
    findings = [*lint.of_recipe(recipe), *lint.of_script(result)]
    raw = recipe.model_dump(mode="json")
    out = _written(raw, request.out or Path(f"{recipe.name}.recipe.yaml"))
    target = launch_config.words(result.target)
    notes = result.notes | {
        str(other): "not read; to import it in place of this one, name it" for other in other_scripts
    }
    notes |= given_values.left_to_target(values, result)
    imported = Imported(raw, notes, target, list(result.argv))
    bash = {"evaluated": bool(result.argv), "why_not": "" if result.argv else "the script does not call xpk"}
    _show(request, imported, out, ["podwright", "plan", str(out)], findings, bash)


def _all(request: ImportRequest, folder: Path, scripts: Sequence[Path], others: Sequence[Path]) -> None:
    """Every launch script below a folder: a row each, and with --out a file each. KEY=VALUE counts for those that have it."""
    values = _values(request.pairs)
    if request.out and (request.out.suffix in (".yaml", ".yml") or request.out.is_file()):
        what = f"{folder} has {len(scripts)} launch scripts, and --out {request.out} names one file"
        raise UserError(what, f"type --out DIRECTORY, or import one of them, such as {scripts[0]}", "file-for-several")
    rows = list[tuple[Record, MaxTextRecipe]]()
    unread = dict[str, str]()
    unused = list(values)
    arguments = dict[str, str]()
    left = dict[str, str]()
    imported = dict[Path, tuple[ImportedScript, MaxTextRecipe]]()
    for path in scripts:
        try:
            result = _read(path, values, request.xpk_version, request.trust)
            load.parse(result.recipe)
        except UserError as e:
            unread[str(path.relative_to(folder))] = e.what
            continue
        imported[path] = result, _recipe(request, result)
        unused = [name for name in unused if name in _unused(path, values, result)]
    names = tree.distinct({path: recipe.name for path, (_, recipe) in imported.items()})
    for path, (result, recipe) in imported.items():
        recipe = recipe.model_copy(update={"name": names[path]})
        arguments |= recipe.arguments
        findings = [*lint.of_recipe(recipe), *lint.of_script(result)]
        rows.append((_row(recipe, findings, path.relative_to(folder), result), recipe))
        left |= given_values.left_to_target(values, result)
    if not rows:
        _refuse_unread(folder, unread)
    refused = {name: values[name] for name in unused}
    texts = [text for path in scripts if str(path.relative_to(folder)) not in unread for text in _texts(path)]
    given_values.refuse(f"the scripts of {folder}", refused, texts, arguments)
    if request.out:
        request.out.mkdir(parents=True, exist_ok=True)
        for row, recipe in rows:
            place = request.out / f"{recipe.name}.recipe.yaml"
            row["out"] = str(_written(recipe.model_dump(mode="json"), place))
    unread |= {
        str(path.relative_to(folder)): f"it {script.why_unread(path.read_text(errors='replace'))}" for path in others
    }
    if request.as_json:
        show.document({"rows": [row for row, _ in rows], "unread": unread})
        return
    _table(request, folder, [row for row, _ in rows], unread)
    for name, note in left.items():
        print(f"{name}: {note}")


def _refuse_unread(folder: Path, unread: Mapping[str, str]) -> NoReturn:
    """UserError for a folder of which no script is read."""
    path, why = next(iter(unread.items()))
    what = f"none of the {len(unread)} scripts in {folder} can be read: {path}: {why}"
    raise UserError(
        what, f"import one of them, such as {folder / path}, with NAME=VALUE for what it lacks", "scripts-not-read"
    )


def _row(recipe: MaxTextRecipe, findings: Sequence[LintFinding], path: Path, result: ImportedScript) -> Record:
    return {
        "name": recipe.name,
        "model": recipe.model_name,
        "topology": recipe.topology,
        "precision": recipe.precision,
        "steps": recipe.arguments.get("steps") or recipe.arguments.get("max_train_steps", ""),
        "script": str(path),
        "argv": list(result.argv),
        "findings": [asdict(finding) for finding in findings],
    }


def _table(request: ImportRequest, folder: Path, rows: Sequence[Record], unread: dict[str, str]) -> None:
    table = [["NAME", "MODEL", "TOPOLOGY", "PRECISION", "STEPS", "FINDINGS"]]
    for row in rows:
        checks = dict.fromkeys(f["check"] for f in row["findings"] if f["level"] != "info")
        table.append([*(row[key] for key in ("name", "model", "topology", "precision", "steps")), ", ".join(checks)])
    show.columns(table)
    for path, why in unread.items():
        print(f"not read: {path}: {why}")
    print(f"{counted(len(rows), 'recipe')} in {folder}")
    if not request.out:
        print("type --out DIRECTORY to write a file for each, or name one script in place of the folder")


def _target(request: ImportRequest, path: Path) -> None:
    config = launch_config.read(path)
    if request.as_json:
        show.document(
            {"recipe": None, "out": None, "command": [], "argv": [], "target": config.target, "notes": config.notes}
        )
        return
    for key, note in config.notes.items():
        print(f"{key}: {note}")
    print(f"type: {shlex.join(config.target)}")


def _written(recipe: Record, place: Path) -> Path:
    """Writes a recipe. What is there already may only be the same."""
    text = load.written(recipe)
    if place.is_dir():
        place /= f"{recipe['name']}.recipe.yaml"
    if place.exists() and place.read_bytes() != text.encode():
        raise UserError(f"{place} exists already", "name another file with --out", "exists-already")
    place.write_text(text)
    return place


def _show(
    request: ImportRequest,
    imported: Imported,
    out: Path,
    command: Sequence[str],
    findings: Sequence[LintFinding] = (),
    bash: Record | None = None,
) -> None:
    if request.as_json:
        document: Record = {"recipe": imported.recipe, "out": str(out), "command": list(command), "argv": imported.argv}
        document |= {"target": imported.target, "notes": imported.notes}
        document |= {"findings": [asdict(f) for f in findings], "bash": bash} if bash is not None else {}
        show.document(document)
        return
    for finding in findings:
        print(f"{finding.level}: {finding.check}: {finding.message}" + (f"; {finding.fix}" if finding.fix else ""))
    for key, note in imported.notes.items():
        print(f"{key}: {note}")
    if bash is not None:
        words = f"bash passes {counted(len(imported.argv), 'word')} to xpk"
        print(words if bash["evaluated"] else bash["why_not"])
    print(f"wrote {out}; type: {shlex.join(command)}")
    if imported.target:
        print(f"for its cluster, type: {shlex.join(imported.target)}")
