"""WHERE a run happens: what the word after --on stands for, and how a target is opened again from what a run wrote down."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from podwright.errors import UserError, nearest
from podwright.rundir import Record

if TYPE_CHECKING:
    from podwright.recipe.kinds import Recipe
    from podwright.slices import Slice
    from podwright.targets.base import Remark, Settings, SlicedSettings, Target, Traits


@dataclass(frozen=True)
class ResolvedTarget:
    """What one word after --on stands for: a target, or a slice that only plans take."""

    name: str
    slice: Slice | None
    """the devices that jax will see; None where only the machines know them"""
    settings: Settings | None
    """None for a slice"""

    @property
    def traits(self) -> Traits:
        return self.require_settings().traits()

    @property
    def runs(self) -> Path | None:
        """Where the target wants the directories of runs; None where any place will do."""
        folder = self.settings.runs if self.settings else ""
        return Path(folder) if folder else None

    @property
    def is_local(self) -> bool:
        """Whether runs on it are processes of this machine."""
        return self.settings is not None and self.traits.this_machine

    @property
    def gpus_per_node(self) -> int:
        """That the target is to have; 0 where its settings do not say."""
        return self.settings.gpus_per_node if self.settings else 0

    @property
    def _sliced(self) -> SlicedSettings | None:
        """The settings, where a recipe that names a slice gets that one."""
        if self.settings is None or not self.traits.slice_of_recipe:
            return None
        return cast("SlicedSettings", self.settings)

    def for_slice(self, name: str) -> ResolvedTarget:
        """With the slice `name` as that of its runs, where recipes name theirs; "" for the target's own. UserError where it cannot be."""
        if not name or self._sliced is None:
            return self
        settings = self._sliced.for_slice(name)
        return ResolvedTarget(self.name, settings.devices(), settings)

    def as_used_by(self, recipe: Recipe) -> ResolvedTarget:
        """With what `recipe` names where the target names nothing, so that a check looks at what its runs need."""
        if self._sliced is None:
            return self
        return ResolvedTarget(self.name, self.slice, self._sliced.as_used_by(recipe))

    def differences(self, recipe: Recipe) -> list[Remark]:
        """What a recipe that names its machines says of them, where the target says something else."""
        return self._sliced.differences(recipe) if self._sliced else []

    def open(self) -> Target:
        """UserError for a slice, which is no target."""
        from podwright.targets import kinds

        settings = self.require_settings()
        return kinds.open_target(settings.kind, self.name, settings)

    def check(self, kind: str = "") -> list[Remark]:
        """What stands in the way of runs (of a `kind` of recipe) as things are now; it may ask other machines."""
        if self.settings is None:
            return []
        from podwright.recipe import kinds as recipe_kinds
        from podwright.targets import kinds
        from podwright.targets.settings import gpus

        settings = self.settings
        unused = _storage_unused(getattr(self.settings, "storage", ""), kind)
        if unused:  # then it is no matter whether the hosts share it
            settings = kinds.recorded_settings(settings.kind, settings.model_dump(mode="json") | {"storage": ""})
        if kind and isinstance(settings, gpus.GpuSettings):
            settings = gpus.with_tasks(settings, recipe_kinds.find(kind).one_gpu_each)
        remarks = kinds.open_target(settings.kind, self.name, settings).check()
        if kind and recipe_kinds.find(kind).traced:
            return [*unused, *remarks]
        return [*unused, *(remark for remark in remarks if not remark.of_jax)]

    def check_access(self) -> list[Remark]:
        """What of the user's rights and of the cloud stands in the way of machines for a run; it asks the cloud, and creates nothing."""
        return self.open().check_access()

    def look_at_storage(self, kind: str) -> list[Remark]:
        """What stands in the way of keeping runs of a `kind` of recipe in the storage of the target, seen from this machine without
        writing; [] where there is none, or the kind does not use it."""
        from podwright.recipe import kinds
        from podwright.storage import trial

        url = self.traits.storage if self.settings else ""
        if not url or not kinds.find(kind).uses_storage:
            return []
        return _storage_fault(trial.require_listable, url)

    def try_storage(self) -> list[Remark]:
        """Whether runs can be kept in the storage of the target, tried from this machine; [] where it has none."""
        from podwright.storage import trial
        from podwright.targets.base import Remark

        url = self.traits.storage if self.settings else ""
        if not url:
            return []
        return _storage_fault(trial.require_usable, url) or [
            Remark("info", f"this machine can write, read, list and delete in storage={url}")
        ]

    def require_settings(self) -> Settings:
        """UserError for a slice, which is no target."""
        if self.settings is None:
            assert self.slice
            raise UserError(
                f"{self.slice.name} is a slice, not a target", "type --on local or --on cpu-8", "slice-not-target"
            )
        return self.settings


def require_programs(traits: Traits) -> None:
    """UserError where this machine lacks programs that runs on a target need: nothing of a run could begin."""
    from podwright.shell import Shell
    from podwright.targets.base import MissingProgram

    missing = {program: fix for program, fix in traits.programs.items() if not Shell.has(program)}
    if missing:
        raise MissingProgram(missing)


def _storage_fault(require: Callable[[str], None], url: str) -> list[Remark]:
    """Why `require` refuses a storage, or could not look at it; [] if it does neither."""
    from podwright.storage.base import StorageFailure
    from podwright.targets.base import Remark

    try:
        require(url)
    except StorageFailure as e:
        return [Remark("inconclusive", e.what, e.fix)]
    except UserError as e:
        return [Remark("error", e.what, e.fix, unanswered=e.code == "missing-package")]
    return []


def _storage_unused(storage: str, kind: str) -> list[Remark]:
    """Of a target with a storage, for a kind of recipe whose trainer keeps nothing there."""
    from podwright.recipe import kinds
    from podwright.targets.base import Remark

    if not (storage and kind) or kinds.find(kind).uses_storage:
        return []
    what = f"kind={kind} does not use storage={storage}: checkpoints and records stay in the directory of the run"
    return [Remark("warning", what, "to keep them elsewhere, give a folder there with --runs")]


def resolve(name: str) -> ResolvedTarget:
    """What `name` stands for; UserError for neither a target nor a slice."""
    from podwright import slices
    from podwright.targets import entries
    from podwright.targets.settings.local import LocalSettings

    if name == "local":
        with contextlib.suppress(entries.FileFault):  # whoever stays on this machine needs no such file
            entries.find(name)
        return ResolvedTarget(name, None, LocalSettings())
    if settings := entries.find(name):
        return ResolvedTarget(name, settings.devices(), settings)
    try:
        devices = slices.parse(name)
    except slices.UnknownSlice as e:
        if guess := nearest(name, entries.names()):
            what = f"there is no target {name!r}"
            raise UserError(what, f"did you mean {guess}? `podwright target list` shows all", e.code) from None
        raise UserError(e.what, f"{e.fix}; `podwright target list` shows your targets", e.code) from None
    here = not (devices.accelerator.pod or devices.accelerator.node)
    return ResolvedTarget(name, devices, LocalSettings(cpu_devices=devices.num_devices) if here else None)


def current(name: str, snapshot: Record | None, slice_: str = "") -> Record:
    """The identity of target `name` as its entry is now, with the `slice_` of a run ("": its own); that in `snapshot` where the entry is gone."""
    from podwright.targets import entries
    from podwright.targets.base import identity

    try:
        resolved = resolve(name).for_slice(slice_)
    except UserError:
        if snapshot is None or name in entries.names():
            raise
        return {key: snapshot[key] for key in ("target", "kind", "settings")}
    return identity(name, resolved.require_settings())


def of_handle(handle: Record) -> Target:
    """The target that made `handle` (or any record with its `identity`), whatever has become of its entry since. UserError for
    one of another version."""
    return recorded(handle).open()


def recorded(identity: Record) -> ResolvedTarget:
    """The target with an `identity`, without its devices. UserError for one of another version."""
    from podwright.targets import kinds

    try:
        settings = kinds.recorded_settings(identity["kind"], identity["settings"])
        return ResolvedTarget(identity["target"], None, settings)
    except (KeyError, ValueError) as e:  # pydantic's is a ValueError
        name = identity.get("target", "")
        kind = identity.get("kind")
        what = f"the journal of the run has settings of target {name!r} (kind={kind}) that this version cannot read"
        raise UserError(what, "follow the run with the version that started it", "other-version") from e
