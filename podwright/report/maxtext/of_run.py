"""The report of a MaxText run: the write-up of the logs of its attempts, with what the run knows besides."""

from __future__ import annotations

from pathlib import Path

from podwright.errors import UserError
from podwright.report import prediction
from podwright.report.maxtext import pages
from podwright.report.records import Records, Result, finite
from podwright.report.result import damaged_files, ending
from podwright.run import cost, journal
from podwright.rundir import RunDir


def write(run: RunDir, records: Records, readme: Path | None) -> Result | None:
    """Write README.md, report.html, result.json, metrics.jsonl and the plots to the report of the run, extend `readme`, and return
    result.json; None, with nothing written, where no step was logged."""
    logs = [run.log(a.number) for a in records.attempts if run.log(a.number).exists()]
    try:
        report = pages.of_run(run, records, str(logs[-1]) if logs else "-", records.recipe, "")
    except UserError:
        return None
    result = report.result
    result |= _ending(result, ending(records))
    result["damaged"] = damaged_files(run, records, result["ending"] is not None)
    result["warnings"] = [f"{sentence}." for sentence in result["damaged"]] + result["warnings"]
    result["usage"] = cost.as_json(cost.usage(map(journal.dated, records.journal), journal.now()))
    result["predicted"], result["not_predicted"] = prediction.compared(run, records, result)
    (run.report / "report.md").unlink(missing_ok=True)  # of a time when no step was logged
    kept = pages.write(report, run.report, readme, "en")
    result["warnings"] += [f"{sentence[0].upper()}{sentence[1:]}." for sentence in kept]
    clean: Result = finite(result)
    return clean


def _ending(result: Result, of_run: Result) -> Result:
    """What the run says of its end, where the log says something else or nothing: a log does not know of a node that was taken."""
    if of_run["ending"] is None or of_run["ending"] == result["ending"]:
        return {"ending_fix": of_run["ending_fix"]}
    return of_run | {"ending_reason": "of_run"}
