"""The report of a MaxText run: what the records of its logs say, with what the run knows besides."""

from __future__ import annotations

from pathlib import Path

from podwright.recipe.load import stored
from podwright.report import prediction
from podwright.report import records as reading
from podwright.report.maxtext import log_run, logged, pages
from podwright.report.maxtext.pages import LogReport
from podwright.report.records import Records, Result, finite
from podwright.report.result import damaged_files, ending
from podwright.run import cost, journal
from podwright.rundir import RunDir
from podwright.watch import maxtext_log


def read(run: RunDir) -> LogReport | None:
    """The figures of a run, or of a log that a run was made of; None where no step was logged."""
    maxtext_log.follow(run, to_end=True)
    records = reading.read(run)
    log = logged.of(run, records)
    if log is None or not log.records:
        return None
    if source := log_run.source_of(records.raw):
        recipe = stored(source["recipe"]) if source["recipe"] else None
        report = pages.of(log, source["file"], recipe, source["slice"], "")
        report.result["profile"] = source["profile"]
        return report
    path = next(run.log(a.number) for a in reversed(records.attempts) if run.log(a.number).exists())
    report = pages.of(log, str(path), records.recipe, "", records.name)
    report.result.update(_of_run(run, records, report.result))
    return report


def write(run: RunDir, readme: Path | None, language: str) -> Result | None:
    """Write README.md, report.html, result.json and the plots to the report of the run, extend `readme`, and return result.json; None, with
    nothing written, where no step was logged."""
    report = read(run)
    if report is None:
        return None
    (run.report / "report.md").unlink(missing_ok=True)  # of a time when no step was logged
    kept = pages.write(report, run.report, readme, language)
    report.result["warnings"] += [f"{sentence[0].upper()}{sentence[1:]}." for sentence in kept]
    return report.result


def _of_run(run: RunDir, records: Records, of_log: Result) -> Result:
    """What a run knows besides its log."""
    result = of_log | _ending(of_log, ending(records))
    result["damaged"] = damaged_files(run, records, result["ending"] is not None)
    result["warnings"] = [f"{sentence}." for sentence in result["damaged"]] + result["warnings"]
    result["usage"] = cost.as_json(cost.usage(map(journal.dated, records.journal), journal.now()))
    result["predicted"], result["not_predicted"] = prediction.compared(run, records, result)
    clean: Result = finite(result)
    return clean


def _ending(result: Result, of_run: Result) -> Result:
    """What the run says of its end, where the log says something else or nothing: a log does not know of a node that was taken."""
    if of_run["ending"] is None or of_run["ending"] == result["ending"]:
        return {"ending_fix": of_run["ending_fix"]}
    return of_run | {"ending_reason": "of_run"}
