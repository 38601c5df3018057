"""Whether this machine lets its user make the namespaces of the sandbox."""

import shutil

from podwright.shell import Shell


def missing() -> str:
    """Why there is no sandbox here; "" where there is one."""
    if shutil.which("unshare") is None:
        return "unshare of util-linux is not installed"
    code, _, errors = Shell().ask(
        ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "true"]
    )
    return f"no user namespaces: {errors.strip()}" if code else ""
