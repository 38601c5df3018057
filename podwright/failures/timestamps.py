"""The times that logs write before their lines: ISO 8601, glog with and without a date, and syslog."""

from __future__ import annotations

import calendar
import functools
import re
import time
from datetime import datetime, timedelta

KUBECTL_PREFIX = r"(?:\[pod/[^\]\s]{1,200}\] )?(?:\d{4}-\d\d-\d\dT[\d:.]{8,18}Z )?"
"""a pattern of what `kubectl logs --prefix --timestamps` writes before a line"""
STAMP = re.compile(
    rb"(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?P<fraction>[.,]\d{1,9})?(?P<zone>Z|[+-]\d\d:?\d\d)?"
    rb"|(?m:^|(?<=[\n\r\0\[ ]))[IWEF](?P<glog>\d{4} \d\d:\d\d:\d\d)(?P<micros>\.\d{1,9})"
    rb"|(?m:^|(?<=[\n\r\0]))[IWEF]0000 00:00:(?P<epoch>\d{10}\.\d{1,6})"
    rb"|(?m:^|(?<=[\n\r\0]))(?P<syslog>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) "
)


def seconds(stamp: re.Match[bytes]) -> float | None:
    """Seconds since 1970 of a match of STAMP. A time without a zone counts as UTC, one without a year as the latest such day.
    None for a number that only looks like a time."""
    iso, fraction, zone, glog, micros, epoch, syslog = stamp.groups()
    try:
        if iso is not None:
            return _iso_minute(iso[:16], zone) + float(iso[17:] + (fraction or b"").replace(b",", b"."))
        if glog is not None:
            return _latest_minute(glog[:10], "%m%d %H:%M") + float(glog[11:] + micros)
        if epoch is not None:
            return float(epoch)
        return _latest_minute(syslog[:12], "%b %d %H:%M") + float(syslog[13:])
    except ValueError:
        return None


@functools.lru_cache(maxsize=64)
def _iso_minute(text: bytes, zone: bytes | None) -> float:
    offset = "+00:00" if zone in (None, b"Z") else zone.decode()
    return datetime.fromisoformat(f"{text.decode().replace(' ', 'T')}:00{offset}").timestamp()


@functools.lru_cache(maxsize=64)
def _latest_minute(text: bytes, form: str) -> float:
    """Of a time without a year: the latest such day that is not in the future; a day is allowed for clocks and zones."""
    today = datetime.fromtimestamp(time.time()) + timedelta(days=1)
    for year in (today.year, today.year - 1):
        begun_s = calendar.timegm(time.strptime(f"{year} {text.decode()}", f"%Y {form}"))
        if begun_s <= today.timestamp():
            break
    return float(begun_s)
