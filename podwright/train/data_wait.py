"""Says when the steps of a run wait for their data, and for how much of their time."""

from __future__ import annotations

_WINDOW = 20  # steps
_FIRST = 3  # steps that do not count: they compile, and the data is only being opened
_SHARE = 0.2  # of the steps' time


class DataWait:
    def __init__(self, advice: str):
        """`advice`: what to change, in keys that the kind of the recipe has."""
        self._advice = advice
        self._steps: list[tuple[float, float]] = []
        self._noticed = False
        self._count = 0

    def stepped(self, wait_s: float, step_s: float) -> list[str]:
        """What there is to say after a step of `step_s`, `wait_s` of them without data; the notice comes once."""
        self._count += 1
        if self._count <= _FIRST:
            return []
        self._steps = [*self._steps[-_WINDOW + 1 :], (wait_s, step_s)]
        wait, total = (sum(column) for column in zip(*self._steps, strict=True))
        if self._noticed or len(self._steps) < _WINDOW or wait <= _SHARE * total:
            return []
        self._noticed = True
        share, each = 100 * wait / total, wait / len(self._steps)
        return [
            f"waiting for data takes {share:.0f} % of the time of the last {_WINDOW} steps ({each:.3g} s a step): {self._advice}"
        ]
