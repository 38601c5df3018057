"""A reader of the part of bash that launch scripts use: what they would call, without starting a process."""
