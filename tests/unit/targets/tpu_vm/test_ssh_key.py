"""The key by which TPU VMs are reached: whole or not there at all."""

import shutil
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.shell import Shell
from podwright.targets.tpu_vm import ssh_key

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen")
BROKEN = """#!/bin/bash
while [ "$1" != -f ]; do shift; done
echo half > "$2"
exit 1
"""


def test_a_key_of_which_only_half_was_written_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    keygen = tmp_path / "bin" / "ssh-keygen"
    keygen.parent.mkdir()
    keygen.write_text(BROKEN)
    keygen.chmod(0o755)
    with monkeypatch.context() as broken:
        broken.setenv("PATH", str(keygen.parent), prepend=":")
        with pytest.raises(UserError, match="no SSH key could be created"):
            ssh_key.public_key(Shell())
    assert ssh_key.public_key(Shell()).startswith("ssh-ed25519 ")
    assert ssh_key.public_key(Shell()) == ssh_key.public_key(Shell())
    assert ssh_key.private_key().stat().st_mode & 0o077 == 0
    kept = {path.name for path in ssh_key.folder().iterdir()}
    assert kept == {"id_ed25519", "id_ed25519.pub", "lock"}
