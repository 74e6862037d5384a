"""SSH server on this machine for the user who runs the tests."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contract.child_processes import end_with_parent

CONF = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
"""
SERVER = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin:/bin")


def missing_programs() -> str:
    """List the missing programs; '' if none."""
    needed = {"sshd": SERVER, "ssh": shutil.which("ssh"), "ssh-keygen": shutil.which("ssh-keygen")}
    return ", ".join(name for name, path in needed.items() if not path)


@contextmanager
def ssh_server(folder: Path) -> Iterator[str]:
    """Start a server; yield the ssh command to reach it at 127.0.0.1."""
    folder.mkdir()
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    (folder / "sshd.conf").write_text(CONF.format(port=port, folder=folder))
    if os.geteuid() == 0:
        # A server that root starts needs this folder, which Debian makes only when the service starts.
        Path("/run/sshd").mkdir(exist_ok=True)
    with (folder / "sshd.log").open("w") as log:
        words = [str(SERVER), "-D", "-e", "-f", str(folder / "sshd.conf")]
        server = subprocess.Popen(words, stdout=log, stderr=log, preexec_fn=end_with_parent)
    options = {"Port": port, "User": getpass.getuser(), "IdentityFile": folder / "user", "IdentitiesOnly": "yes"}
    options |= {"UserKnownHostsFile": folder / "known", "StrictHostKeyChecking": "accept-new", "LogLevel": "ERROR"}
    ssh = ["ssh", "-F", "none", *(f"-o{name}={value}" for name, value in options.items())]
    try:
        for _ in range(100):
            if not subprocess.run([*ssh, "127.0.0.1", "true"], check=False, capture_output=True).returncode:
                break
            time.sleep(0.1)
        else:
            raise RuntimeError((folder / "sshd.log").read_text()[-1000:])
        yield shlex.join(ssh)
    finally:
        server.kill()
