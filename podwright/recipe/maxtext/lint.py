"""Findings about a MaxText recipe and the script it is from, each with what to type. No cluster and no network is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.errors import UserError
from podwright.recipe.maxtext import lint_command, secret_values, xpk
from podwright.recipe.maxtext.imported import ImportedScript
from podwright.recipe.maxtext.lint_finding import LintFinding
from podwright.recipe.maxtext.schema import FROM_TARGET, VARIABLE, MaxTextRecipe

XPK_RELEASES = frozenset(
    [
        "0.0.1",
        "0.1.0",
        "0.2.0",
        "0.3.0",
        "0.4.0",
        "0.5.0",
        "0.6.0",
        "0.7.0",
        "0.7.1",
        "0.7.2",
        "0.8.0",
        "0.9.0",
        "0.10.0",
        "0.10.1",
        "0.11.0",
        "0.12.0",
        "0.13.0",
        "0.14.0",
        "0.14.1",
        "0.14.2",
        "0.14.3",
        "0.14.4",
        "0.15.0",
        "0.16.0",
        "0.16.1",
        "0.17.0",
        "0.17.1",
        "0.17.2",
        "0.17.3",
        "1.0.0",
        "1.1.0",
        "1.1.1",
        "1.1.2",
        "1.2.0",
        "1.3.0",
        "1.5.0",
        "1.6.0",
        "1.7.0",
        "1.8.0",
        "1.9.0",
        "1.10.0",
        "1.11.0",
        "1.12.0",
        "1.13.0",
        "1.13.1",
        "1.14.0",
        "1.15.0",
        "1.16.0",
    ]
)
"""versions on https://pypi.org/project/xpk/ on 2026-11-23, the newest of 2026-08-04"""
LONGEST_NAME = 40
"""characters of the name of a workload that xpk accepts"""
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_UPLOAD = (
    (re.compile(r"gsutil\b"), re.compile(r"\bcp\b")),
    (re.compile(r"gcloud (?:alpha )?storage cp"), re.compile("")),
)
_UPLOAD_TO_ROOT = re.compile(r"\bcp\b"), re.compile(r"\s/logs/")
"""words that stand behind each other on a line"""
_BY_TOPOLOGY = {
    "4x4x8": {
        "ici_fsdp_transpose_parallelism": "1",
        "use_max_logit_estimate": "-1",
        "attn_logits_soft_cap": "",
        "moe_fsdp_use_two_stage_all_gather": "",
    },
    "4x8x8": {
        "ici_fsdp_transpose_parallelism": "2",
        "use_max_logit_estimate": "22",
        "attn_logits_soft_cap": "15",
        "moe_fsdp_use_two_stage_all_gather": "True",
    },
}
"""arguments in which the public fp8 recipes of deepseek3-671b differ by topology; "": not there"""


def of_recipe(recipe: MaxTextRecipe) -> list[LintFinding]:
    """What can be seen in a recipe alone."""
    return [
        *_training_script(recipe),
        *_secrets(recipe),
        *_placeholders(recipe),
        *_words_without_key(recipe),
        *_log_upload(recipe),
        *_xpk_version(recipe.versions.xpk),
        *_xpk_options(recipe),
        *_other_topology(recipe),
        *_profiler(recipe),
        *_leftovers(recipe),
        *_network(recipe),
        *lint_command.check(recipe),
        *_priority(recipe),
    ]


def _branches(imported: ImportedScript) -> Iterator[LintFinding]:
    for each in imported.deciding:
        value = f"{each.name}={each.value:.60}" if each.value else f"an empty {each.name}"
        what = f"{each.name} decides more of what is launched than its own place: the recipe has the words for {value}"
        yield LintFinding("branch", "warning", what, f"for another value, import again with {each.name}=VALUE")


def of_script(imported: ImportedScript, user: str) -> list[LintFinding]:
    """What concerns the script as it would be submitted by hand: the name of its workload, and values that are missing."""
    findings = list(_workload_name(imported.workload_name, user, imported.name_variable))
    unset = [name for name in imported.unset if name not in FROM_TARGET]
    if unset:
        lines = ", ".join(f"{name} (line {imported.unset[name]})" for name in unset)
        types = " ".join(f"{name}=VALUE" for name in unset)
        findings.append(
            LintFinding("unset", "warning", f"the script uses {lines} and does not set it", f"type {types}")
        )
    if imported.problem:
        fix = "end it in the script before submitting by hand"
        findings.append(LintFinding("bash", "warning", imported.problem, fix))
    if imported.trusted:
        what = "bash has run the script without a sandbox: it could write no file and reach no network, but it could read what you can read"
        findings.append(LintFinding("bash", "warning", what, "import it where user namespaces are allowed"))
    return [*findings, *_branches(imported)]


def _training_script(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    if recipe.launch.module.endswith(".sh"):
        name = recipe.launch.module.rpartition("/")[2]
        message = f"the container runs {recipe.launch.module}, whose arguments of MaxText are not known here"
        yield LintFinding(
            "training-script", "inconclusive", message, f"put {name} beside the launch script and import again"
        )


def _secrets(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    if wrong := secret_values.problem(recipe):
        yield LintFinding("secret", "error", *wrong)


def _placeholders(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    values = {
        "image": recipe.image,
        "launch.module": recipe.launch.module,
        "launch.base_config": recipe.launch.base_config,
        "xla_flags": " ".join(recipe.xla_flags),
        **{f"arguments.{key}": value for key, value in recipe.arguments.items()},
        **{f"environment.{key}": value for key, value in recipe.environment.items()},
        **{f"xpk.{key}": value for key, value in recipe.xpk.items()},
    }
    for key, value in values.items():
        names = [
            name for name in VARIABLE.findall(value) if name not in (*FROM_TARGET, "ARTIFACT_DIR", "TPU_WORKER_ID")
        ]
        names += re.findall(r"<([A-Za-z][\w .-]*)>", value)
        if not names:
            continue
        fix = f"type {key}=VALUE"
        if key == "xla_flags":
            fix = f"type {names[0]}=VALUE with render and run, or write the flag out"
        if key in ("arguments.base_output_directory", "arguments.output_dir"):
            fix = f"type {key}='${{BASE_OUTPUT_DIR}}', which the target fills in"
        yield LintFinding("placeholder", "error", f"{key} is {value!r}, with {names[0]} still to be filled in", fix)


def _words_without_key(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    """Words among MaxText's arguments, before a pipe or the next command, that are no KEY=VALUE."""
    if "max" not in recipe.launch.module.lower():
        return
    behind = re.split(r"(?:^|\s)\d*[<>]|[|&;<>()`]", recipe.launch.after)[0]
    words = [word for word in behind.split() if not re.search(r"[=$]", word) and word[0] not in "-'\""]
    if words:
        plural = "are words" if len(words) > 1 else "is a word"
        message = f"{' '.join(words)} {plural} without =, and MaxText takes KEY=VALUE"
        fix = f"write {words[0]}={words[1] if len(words) > 1 else 'VALUE'} in the script and import again"
        yield LintFinding("argument", "error", message, fix)


def _log_upload(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    after = recipe.launch.after
    if not any(_follows(after, *words) for words in _UPLOAD):
        yield LintFinding(
            "log-upload",
            "info",
            "the log is not uploaded: kubectl logs has it until the JobSet is deleted",
            "type launch.after='| tee train.log && gsutil cp train.log ${BASE_OUTPUT_DIR}/${WORKLOAD_NAME}/logs/train-${TPU_WORKER_ID}.log'",
        )
    elif _follows(after, *_UPLOAD_TO_ROOT):
        yield LintFinding(
            "artifact-dir",
            "error",
            "the log is copied to /logs/, a folder of the container: the copy fails after training, and the run counts as failed",
            "write gs://BUCKET/FOLDER before /logs/ in launch.after",
        )
    elif "${ARTIFACT_DIR}" in after:
        yield LintFinding(
            "artifact-dir",
            "error",
            "ARTIFACT_DIR is empty in the script: the upload of the log to /logs/ fails after training, and the run counts as failed",
            "type ARTIFACT_DIR=gs://BUCKET/FOLDER when importing",
        )


def _follows(text: str, first: re.Pattern[str], second: re.Pattern[str]) -> bool:
    """Whether a line has the one and the other behind it."""
    return any((match := first.search(line)) and second.search(line, match.end()) for line in text.split("\n"))


def _xpk_version(version: str) -> Iterator[LintFinding]:
    if not version:
        yield LintFinding(
            "xpk-version",
            "inconclusive",
            "neither script nor README says which xpk it needs",
            f"type versions.xpk={xpk.NEWEST}",
        )
        return
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    if version in XPK_RELEASES:
        return
    if numbers > _numbers(xpk.NEWEST):
        message = f"xpk {version} is newer than the newest that is known here, {xpk.NEWEST} of 2026-08-04"
        yield LintFinding("xpk-version", "inconclusive", message, f"type pip download --no-deps xpk=={version}")
        return
    older = max((r for r in XPK_RELEASES if _numbers(r) < numbers), key=_numbers, default=xpk.NEWEST)
    message = f"xpk {version}, which the script asks for, is not on PyPI (as of 2026-11-23)"
    yield LintFinding("xpk-version", "error", message, f"type versions.xpk={older}, the release before it")


def _xpk_options(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    for name in recipe.xpk:
        try:
            xpk.require_undecided([name])
            xpk.require_option(name, recipe.versions.xpk)
        except UserError as e:
            yield LintFinding("xpk-option", "error", e.what, e.fix)
            continue
        if name not in xpk.OPTIONS:
            message = f"--{name} is no option of xpk until {xpk.NEWEST}; xpk {recipe.versions.xpk}, which the recipe asks for, may have it"
            yield LintFinding("xpk-option", "inconclusive", message, "check it with xpk workload create --help")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _other_topology(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    shape = recipe.topology.partition("-")[2]
    if recipe.precision == "fp8" and recipe.model_name.startswith("deepseek3-671b") and shape in _BY_TOPOLOGY:
        other = next(name for name in _BY_TOPOLOGY if name != shape)
        own, others = _BY_TOPOLOGY[shape], _BY_TOPOLOGY[other]
        wrong = [key for key in own if recipe.arguments.get(key, "") == others[key] != own[key]]
        if wrong:
            keys = ", ".join(f"{key}={recipe.arguments.get(key) or '(not there)'}" for key in wrong)
            types = " ".join(f"arguments.{key}={own[key]}" for key in wrong) if all(own[key] for key in wrong) else ""
            yield LintFinding(
                "topology",
                "warning",
                f"{keys}: so the public fp8 recipe for {other} has it, and not the one for {shape}",
                f"type {types}" if types else f"import the recipe for {shape}",
            )
    named = re.search(r"tpu7x-(\d+x\d+x\d+)", recipe.name)
    if named and recipe.topology.startswith("tpu7x-") and named[1] != shape:
        message = f"the name {recipe.name} says {named[1]}, and --device-type says {recipe.topology}"
        yield LintFinding(
            "topology", "warning", message, f"type topology=tpu7x-{named[1]}, if the arguments are for that"
        )


def _profiler(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    if not recipe.arguments.get("profiler") and recipe.arguments.get("enable_profiler", "").lower() != "true":
        yield LintFinding(
            "profiler",
            "info",
            "no step is profiled",
            "type arguments.profiler=xplane arguments.skip_first_n_steps_for_profiler=5 arguments.profiler_steps=3",
        )


def _leftovers(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    path = recipe.arguments.get("dataset_path")
    if path and recipe.arguments.get("dataset_type") == "synthetic":
        yield LintFinding("dataset", "info", f"dataset_path={path} is not read: dataset_type is synthetic")


def _network(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    for command in recipe.launch.setup:
        if re.search(r"\bpip3?\b.*\binstall\b", command):
            message = f"each container runs `{command}` at its start, which needs a network that reaches PyPI or GitHub"
            yield LintFinding("network", "warning", message, "build it into the image where the nodes are private")


def _priority(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    if priority := recipe.xpk.get("priority"):
        message = f"a cluster without the PriorityClass {priority} never admits the workload, and does not say why"
        yield LintFinding("priority", "info", message, "check it with kubectl get priorityclasses")


def _workload_name(name: str, user: str, variable: str) -> Iterator[LintFinding]:
    if re.search(r"-\d{8}-\d{4}$", name):
        message = f"the name {name} ends in the minute: a second submission within it has the same one, for which xpk deletes the first"
        fix = f"wait a minute between two, or {_to_name('NAME', variable)}"
        yield LintFinding("name-collision", "info", message, fix)
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    typed = (plain if plain[:1].isalpha() else f"w-{plain}")[:LONGEST_NAME].rstrip("-")
    if len(name) > LONGEST_NAME:
        message = f"the workload's name {name} has {len(name)} characters, and xpk accepts {LONGEST_NAME}"
        yield LintFinding("workload-name", "error", message, _to_name(typed, variable))
    elif name and not _NAME.fullmatch(name):
        named_after_user = (
            user and name.startswith(user.replace("_", "-")) and not _NAME.fullmatch(user.replace("_", "-"))
        )
        cause = f": $USER is {user}" if named_after_user else ""
        message = f"xpk refuses the workload's name {name}{cause}; it takes small letters, digits and -, beginning with a letter"
        yield LintFinding("workload-name", "error", message, _to_name(typed, variable))


def _to_name(name: str, variable: str) -> str:
    """What gives a workload its name: a value at the import, or a word of the script."""
    return f"type {variable}={name}" if variable else f"write --workload={name} in the script"
