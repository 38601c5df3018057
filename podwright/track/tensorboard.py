"""Event files under the run's trackers/tensorboard, written with TensorBoard's own protobufs; needs neither torch nor TensorFlow."""

from __future__ import annotations

import io

from podwright.rundir import RunDir
from podwright.track.batch import MetricBatch, Row


def due(batch: MetricBatch) -> bool:
    return bool(batch.rows)


def send(run: RunDir, batch: MetricBatch) -> str | None:
    """Append the rows to one file. What follows the last batch that was noted as sent was cut short by a kill, and is dropped."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    folder = run.trackers / "tensorboard"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{int(batch.state.setdefault('started', batch.rows[0].time))}.podwright"
    data = io.BytesIO()
    writer = RecordWriter(data)
    size = batch.state.get("bytes", 0)
    if not size:
        writer.write(Event(wall_time=batch.state["started"], file_version="brain.Event:2").SerializeToString())
    for row in batch.rows:
        writer.write(_event(row))
    with path.open("ab") as file:
        file.truncate(size)
        file.write(data.getvalue())
    batch.state["bytes"] = size + data.tell()
    return None


def _event(row: Row) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=f"{row.stage}/{name}", simple_value=value) for name, value in row.figures.items()]
    event: bytes = Event(wall_time=row.time, step=row.step, summary=Summary(value=values)).SerializeToString()
    return event
