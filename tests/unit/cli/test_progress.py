"""What is printed while a compiler works."""

import io

from podwright.cli.progress import CompileProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(out: io.StringIO) -> str:
    now = [0.0]
    progress = CompileProgress(out, lambda: now[0])
    for second in range(0, 200, 5):
        now[0] = second
        progress("update", "compiling", second)
    return out.getvalue()


def test_without_a_terminal_there_is_a_line_a_minute() -> None:
    assert told(io.StringIO()).splitlines() == [
        "update: compiling, 60 s",
        "update: compiling, 120 s",
        "update: compiling, 180 s",
    ]


def test_on_a_terminal_one_line_is_written_over() -> None:
    written = told(Terminal())
    assert written.startswith("\r\033[Kupdate: compiling, 0 s\r\033[K") and "\n" not in written


def test_an_announcement_is_a_line_of_its_own_at_once() -> None:
    plain, terminal = io.StringIO(), Terminal()
    for out in (plain, terminal):
        progress = CompileProgress(out, lambda: 0.0)
        progress("update", "compiling", 3)
        progress.announce("installing maxtext 0.2.5: about 2.4 GB")
    assert plain.getvalue() == "installing maxtext 0.2.5: about 2.4 GB\n"
    assert terminal.getvalue().endswith("3 s\r\033[Kinstalling maxtext 0.2.5: about 2.4 GB\n")
