"""Real Slurm cluster with two nodes, as daemons on this machine."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from contract.child_processes import end_with_parent

DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "srun", "squeue", "scancel", "sinfo", "scontrol", "sacctmgr")
NODES = ("red", "blue")
# Configuration for an unprivileged user: no accounting, no control groups.
CONF = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SelectType=select/cons_tres
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MinJobAge=300
ReturnToService=2
BatchStartTimeout=5
SchedulerParameters=sched_interval=2
NodeName=red NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus} State=UNKNOWN
NodeName=blue NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=red,blue Default=YES MaxTime=INFINITE State=UP
"""


def missing_programs() -> str:
    """List the missing Slurm programs; '' if none."""
    return ", ".join(name for name in (*DAEMONS, *CLIENTS) if not shutil.which(name, path=_path()))


def _path() -> str:
    return os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])


@dataclass
class Cluster:
    """Running Slurm daemons by name; `folder` has their files."""

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]]

    @property
    def env(self) -> dict[str, str]:
        """Return the environment for Slurm's commands. Its PATH starts with wrappers for this cluster."""
        return {"PATH": f"{self.folder / 'bin'}{os.pathsep}{_path()}"}

    def start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                words, env=os.environ | self.env, stdout=out, stderr=out, start_new_session=True,
                preexec_fn=end_with_parent,
            )  # fmt: skip

    def run_command(self, *words: str) -> str:
        """Run a Slurm command; return its output."""
        return subprocess.run(
            words, env=os.environ | self.env, capture_output=True, text=True, check=False, timeout=60
        ).stdout.strip()

    def end(self) -> None:
        """End all daemons and their jobs."""
        self.run_command("scancel", "--full", "--signal=KILL", "--user", getpass.getuser())
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster with idle nodes. Raises RuntimeError with Slurm's output if the nodes do not become idle."""
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    (folder / "state").mkdir()
    for node in NODES:
        (folder / f"spool-{node}").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    cpus = len(os.sched_getaffinity(0))
    conf = CONF.format(user=getpass.getuser(), folder=folder, ports=_free_ports(3), cpus=cpus)
    (folder / "slurm.conf").write_text(conf)
    (folder / "bin").mkdir()
    for name in CLIENTS:
        command = folder / "bin" / name
        command.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which(name, path=_path())} "$@"\n')
        command.chmod(0o755)
    cluster = Cluster(folder, {})
    try:
        files = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munge.pid", "log-file": "munge.log"}
        places = [f"--{option}={folder / name}" for option, name in {**files, "seed-file": "munge.seed"}.items()]
        cluster.start("munged", "munged", "--foreground", "--force", *places)
        cluster.start("slurmctld", "slurmctld", "-D", "-f", str(folder / "slurm.conf"))
        for node in NODES:
            cluster.start(node, "slurmd", "-D", "-N", node, "-f", str(folder / "slurm.conf"))
        until = time.monotonic() + 60
        while cluster.run_command("sinfo", "--noheader", "--states=idle", "--format=%D") != str(len(NODES)):
            if time.monotonic() > until:
                raise RuntimeError("\n".join(path.read_text()[-500:] for path in sorted(folder.glob("*.[lo]*[gt]"))))
            time.sleep(0.5)
        yield cluster
    finally:
        cluster.end()


def _free_ports(number: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
