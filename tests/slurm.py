"""A real SLURM with one node, this machine, that runs during a test.

Needs root and the Debian packages slurm-wlm, slurm-wlm-basic-plugins and munge; `why_not` names
what is missing. There is no accounting, as on many small clusters: a job that is killed leaves the
queue, and its exit status is lost.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONFIG = """
ClusterName=looped
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
SwitchType=switch/none
MinJobAge=10
KillWait=2
InactiveLimit=0
Waittime=0
SlurmctldPort=16817
SlurmdPort=16818
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def why_not() -> str | None:
    """Why SLURM cannot be started on this machine; None if it can."""
    if os.geteuid() != 0:
        return "only root can start SLURM"
    path = os.environ["PATH"] + ":/usr/sbin"
    programs = ["slurmctld", "slurmd", "munged", "sbatch", "runuser"]
    missing = [name for name in programs if not shutil.which(name, path=path)]
    return f"not installed: {', '.join(missing)}" if missing else None


@contextmanager
def single_node(folder: Path) -> Iterator[None]:
    """Run a single-node SLURM during the block; SLURM_CONF is the path of its configuration."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(host=socket.gethostname().partition(".")[0], folder=folder))
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(config)
    try:
        _start_munge()
        subprocess.run(["/usr/sbin/slurmctld", "-c", "-f", config], check=True)
        subprocess.run(["/usr/sbin/slurmd", "-c", "-f", config], check=True)
        _wait(lambda: _output("sinfo", "-h", "-o", "%t") == "idle", "SLURM")
        yield
    finally:
        subprocess.run(["scancel", "--user", "root"], capture_output=True)
        for name in ("slurmd.pid", "slurmctld.pid"):
            _stop(folder / name)
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before


def _start_munge() -> None:
    if _output("munge", "-n"):
        return
    key = Path("/etc/munge/munge.key")
    if not key.is_file():
        subprocess.run(["/usr/sbin/mungekey", "--create", "--bits", "1024"], check=True)
    for path in ("/run/munge", "/var/lib/munge", "/var/log/munge"):
        Path(path).mkdir(exist_ok=True, parents=True)
        shutil.chown(path, "munge", "munge")
    shutil.chown(key, "munge", "munge")
    key.chmod(0o400)
    command = ["runuser", "-u", "munge", "--", "/usr/sbin/munged", "--force"]
    subprocess.run(command, check=True, capture_output=True)
    _wait(lambda: _output("munge", "-n"), "munge")


def _output(*command) -> str:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.stdout.strip() if done.returncode == 0 else ""


def _wait(ready, what, seconds=20.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not start within {seconds} s")
        time.sleep(0.05)


def _stop(pid_file: Path) -> None:
    if not pid_file.is_file():
        return
    pid = int(pid_file.read_text())
    try:
        os.kill(pid, signal.SIGTERM)
        _wait(lambda: not Path(f"/proc/{pid}").exists(), f"the end of process {pid}")
    except ProcessLookupError:
        pass
