"""The process from which the launchers of these tests are forked tells each test how its own launcher ended."""

from pathlib import Path

from tests.e2e.fork_server import ForkServer

NEAR = 2000  # processes that this machine may start in the meantime


def test_a_process_has_no_status_of_an_earlier_one_with_its_number(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit(3)\n")
    with ForkServer() as server:
        first = server.start(script, [], tmp_path, {}, tmp_path / "out")
        assert first.wait(900) == 3
        server._statuses.update({first.pid + n: 0 for n in range(1, NEAR)})
        assert server.start(script, [], tmp_path, {}, tmp_path / "out").wait(900) == 3
