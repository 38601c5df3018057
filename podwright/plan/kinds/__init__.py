"""What a plan asks of a kind of recipe; each kind's answers are a module here, named in recipe/kinds.py.

The functions of the other rooms of plan/ know no kinds: what they need of one they are given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from podwright.errors import UserError
from podwright.plan.checks import meshes
from podwright.plan.checks.unused_keys import UnusedKeys
from podwright.plan.document import MemoryEntry, Plan, ProgramEntry, StepEntry
from podwright.plan.estimates import memory
from podwright.plan.findings import Finding
from podwright.plan.settings import Overrides
from podwright.recipe import kinds
from podwright.recipe.paths import looks_like_path
from podwright.slices import Slice
from podwright.storage import inputs

if TYPE_CHECKING:
    from podwright.plan.estimates.memory_torch import HostMemory
    from podwright.plan.options import Destination, PlanOptions

R = TypeVar("R")

_WORDS = ("random", "pretrained", "drawn", "arithmetic")  # sources that stand for no file


@dataclass(frozen=True)
class CompiledPrograms:
    """What a compiler adds to a plan."""

    findings: tuple[Finding, ...]
    programs: tuple[ProgramEntry, ...]
    step: StepEntry | None = None


class PlanPart(Generic[R]):
    """A kind's answers. What a kind does not answer is unknown, and a plan says so."""

    packages: tuple[str, ...] = ()
    """without which no recipe of the kind starts"""
    hub_sections: tuple[str, ...] = ("model",)
    """sections of the recipe whose source may be a hub id"""
    closed_form: Any = None
    """module of plan/estimates that has one of memory, as `estimates` and `trained_state`; None where there is none"""
    unused_keys: tuple[UnusedKeys, ...] = ()
    """keys of the recipe that have no effect because of another key"""
    searches = False
    """whether `fitted` searches its settings"""
    depends: Mapping[str, tuple[str, ...]] = MappingProxyType(
        {
            "mesh": ("model",),
            "batch": ("model",),
            "context": ("model", "data"),
            "memory": ("mesh", "batch", "model"),
            "preemption": ("mesh", "batch", "model"),
        }
    )
    """check -> those without whose answer it says nothing"""
    memory_fix = "start it there with --smoke 3, which shows what it needs"
    """what to type where it does not"""

    def needed(self, recipe: R) -> tuple[str, ...]:
        """Packages without which this recipe does not start."""
        return self.packages

    def files(self, recipe: R) -> list[str]:
        """Of what the recipe names those values that are paths; what looks like a hub id is one where it may stand and no file is there."""
        record: Any = recipe
        values = inputs.named(record.model_dump(mode="json"))
        return [
            value
            for key, value in values.items()
            if value not in _WORDS
            and (key.partition(".")[0] not in self.hub_sections or looks_like_path(value, Path()))
        ]

    def written_for(self, recipe: R) -> Slice | None:
        """The devices that a recipe names itself; None where it runs on any."""
        return None

    def checks(self, recipe: R, where: Slice | None, cwd: Path) -> list[Finding]:
        """Everything that can be said without a compiler. `where` is None where only the machine itself knows its devices."""
        return []

    def to_start(self, recipe: R, cwd: Path) -> list[Finding]:
        """Errors of a run whose plan is possible without what they name."""
        return []

    def here(self, recipe: R) -> list[Finding]:
        """What this machine lacks to run it."""
        return []

    def dimensions(self, recipe: R, cwd: Path) -> Any:
        """Of the recipe's model; None where they are not known here."""
        return None

    def programs(self, recipe: R) -> Sequence[str]:
        """What a run compiles, the largest first."""
        return ()

    def takes(self, recipe: R, mesh: Mapping[str, int | str], shards: int) -> bool:
        """Whether the recipe can have a mesh, by key, that divides its model and splits its batch into so many shards."""
        return True

    def test_rows(self, recipe: R) -> int:
        """`evaluation.batch_size`, where a test has rows of its own and fewer of them change no result; else 0."""
        return 0

    def offloaded(self, recipe: R) -> Overrides:
        """What keeps in the hosts' memory that is on the devices now and could wait there; {} where there is nothing."""
        return {}

    def with_adapters(self, recipe: R) -> Iterator[Overrides]:
        """What trains adapters in place of all parameters, the change that needs most memory first; nothing where that cannot be."""
        yield from ()

    def irrelevant(self, program: str) -> Collection[str]:
        """Sections and keys of the recipe, `section.key`, on which a program does not depend, besides those on which none does."""
        return ()

    def meshes(self, recipe: R, where: Slice, cwd: Path) -> Sequence[Mapping[str, int]]:
        """Every mesh over the devices of `where` that works, by axis."""
        record: Any = recipe
        return meshes.named(record, self.dimensions(recipe, cwd), where) if self.closed_form else ()

    def memory(self, recipe: R, where: Slice, cwd: Path, dims: Any = None) -> list[MemoryEntry]:
        """The closed form of each program's memory; [] where it is unknown. Mesh, batch and model are sound when this is asked. `dims`: of the
        model, where they have been read already."""
        dims = dims or self.dimensions(recipe, cwd)
        if self.closed_form is None or dims is None:
            return []
        record: Any = recipe
        row = where.accelerator
        estimates = self.closed_form.estimates(record, dims, meshes.resolved(record, where), row, self.programs(recipe))
        return [memory.entry(estimate, row.program_bytes) for estimate in estimates]

    def saved_bytes(self, recipe: R, cwd: Path) -> float | None:
        """Of a checkpoint; None where it is unknown."""
        dims = self.dimensions(recipe, cwd)
        if self.closed_form is None or dims is None:
            return None
        return float(sum(self.closed_form.trained_state(recipe, dims).values()))

    def host_memory(self, recipe: R, processes: int, cwd: Path) -> HostMemory | None:
        """What each of so many processes needs where the CPU trains, of a kind whose `memory` is unknown."""
        return None

    def step(self, recipe: R, where: Slice, cwd: Path, price: float | None) -> StepEntry | None:
        """The closed form of a step's time; None where it is unknown. Mesh, batch and model are sound when this is asked."""
        return None

    def step_seconds(self, recipe: R, dims: Any, where: Slice) -> float:
        """The closed form of a step's time by which `fitted` ranks settings; of kinds that are searched."""
        raise NotImplementedError

    def compiler_package(self, recipe: R) -> str:
        """A package that the compiler's environment needs besides jax; "" for none."""
        return ""

    def compiled(self, recipe: R, where: Slice, options: PlanOptions) -> CompiledPrograms:
        raise UserError(
            f"a recipe of kind {_kind(recipe)} has nothing to compile", "leave --compile out", "no-compiler"
        )

    def settled(self, finding: Finding, compiled: CompiledPrograms) -> bool:
        """Whether what a check could not say is answered by the compiler."""
        return False

    def fitted(self, recipe: R, destination: Destination, options: PlanOptions) -> Plan:
        """The plan of the fastest settings that fit."""
        if self.searches:
            from podwright.plan import fit

            record: Any = recipe
            return fit.fitted(record, destination, options)
        what = f"--fit searches settings of GRPO and pretraining, {getattr(recipe, 'name', 'this')} is of kind {_kind(recipe)}"
        raise UserError(what, "leave --fit out", "no-search")


def of(recipe: R) -> PlanPart[R]:
    """The answers for a recipe; UserError for a kind that this version does not know."""
    part: PlanPart[R] = kinds.resolve(kinds.find(_kind(recipe)).plan)
    return part


def _kind(recipe: object) -> object:
    return getattr(recipe, "kind", None)
