# SPDX-License-Identifier: Apache-2.0
"""The package under a separate systemd: systemd-nspawn boots a root file system with the package, in a new mount and cgroup namespace."""
import os
import shutil
import signal
import subprocess
import time

from planes import PATIENCE_S, Skipped, missing

# The container is not registered, so that no systemd has to run outside. DPDK looks for modules of the kernel.
HOLDER = """
mount --make-rprivate /
umount -l /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p /sys/fs/cgroup/sluice-booted
echo $$ > /sys/fs/cgroup/sluice-booted/cgroup.procs
exec systemd-nspawn --quiet --register=no --keep-unit --private-network --machine=sluice-booted --bind-ro=/sys/module --directory="$0" --boot"""
RELEASE_OF_HERE = '. /etc/os-release && echo "$VERSION_CODENAME"'


def make(package, folder):
    """Makes a root file system of Debian's required packages, systemd, the package and its dependencies. The package's file stays in it, to be
    installed again."""
    if sentence := missing("mmdebstrap", "systemd-nspawn", "unshare", "nsenter"):
        raise Skipped(sentence)
    name = os.path.basename(package)
    release = subprocess.run(["sh", "-c", RELEASE_OF_HERE], capture_output=True, text=True, check=True).stdout.strip()
    done = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd,systemd-sysv,dbus",
                           f"--customize-hook=copy-in {package} /root", f'--customize-hook=chroot "$1" apt-get install --yes --no-install-recommends /root/{name}',
                           release, folder], capture_output=True, text=True, check=False)
    if "apt-get update" in done.stderr:
        raise Skipped("No mirror of Debian answers.")
    assert done.returncode == 0, done.stderr[-2000:]


class Machine:
    def __init__(self, root):
        self.log = open(f"{root}.log", "w+", encoding="utf-8")
        self.nspawn = subprocess.Popen(["unshare", "--mount", "--cgroup", "sh", "-ec", HOLDER, root], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def boot(self):
        self.wait("systemd is up", lambda: self.leader() and self.run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"))

    def leader(self):
        """Returns the process that is the machine's init."""
        children = subprocess.run(["pgrep", "-P", str(self.nspawn.pid)], capture_output=True, text=True, check=False).stdout.split()
        return next((child for child in children if os.path.basename(os.readlink(f"/proc/{child}/exe")) == "systemd"), None)

    def wait(self, what, condition, seconds=4 * PATIENCE_S):
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            if self.nspawn.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                raise AssertionError(f"{what}: no; {self.log.read()[-2000:]}; {self.run('journalctl', '--no-pager', '-n', '40').stdout}" if self.leader() else self.log.read())
            time.sleep(0.2)
        return found

    def run(self, *words):
        return subprocess.run(["nsenter", f"--target={self.leader()}", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd", *words],
                              capture_output=True, text=True, check=False)

    def done(self, *words):
        ran = self.run(*words)
        assert ran.returncode == 0, (ran, self.run("journalctl", "--no-pager", "-n", "40").stdout)
        return ran.stdout

    def shown(self, unit, *properties):
        lines = self.done("systemctl", "show", unit, *(f"--property={name}" for name in properties)).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def pid(self, unit):
        return int(self.shown(unit, "MainPID")["MainPID"])

    def stop(self):
        if self.nspawn.poll() is None and self.leader():
            os.kill(int(self.leader()), signal.SIGRTMIN + 4)  # systemd: power off
        try:
            self.nspawn.wait(60)
        except subprocess.TimeoutExpired:
            self.nspawn.kill()
            self.nspawn.wait()
        self.log.close()


UNITS = ("sluice-controlplane", "sluice-dataplane")


def nothing_runs_that_nobody_has_started(machine):
    for unit in UNITS:
        assert machine.run("systemctl", "is-enabled", unit).stdout.strip() == "disabled", unit
        assert machine.run("systemctl", "is-active", unit).stdout.strip() == "inactive", unit


def a_started_unit_serves(machine):
    """Type=notify: a unit has started when it is ready."""
    machine.done("systemctl", "start", *UNITS)
    machine.done("sluicectl", "status")
    machine.done("sluicectl", "exports", "add", "/saved", "--save")
    machine.done("test", "-f", "/etc/sluice/exports.d/saved.toml")
    machine.done("sluice-bench", "probe")


def a_plane_that_hangs_is_ended_and_comes_back(machine, unit):
    before = machine.pid(unit)
    machine.done("systemctl", "kill", "--kill-whom=main", "--signal=STOP", unit)
    machine.wait(f"the watchdog has {unit} restarted", lambda: machine.pid(unit) not in (0, before) and machine.shown(unit, "ActiveState")["ActiveState"] == "active")
    said = machine.done("journalctl", "--no-pager", "--unit", unit)
    assert "Watchdog timeout" in said, said
    machine.done("sluice-bench", "probe")


def a_plane_that_dies_comes_back(machine, unit):
    before = machine.pid(unit)
    machine.done("systemctl", "kill", "--kill-whom=main", "--signal=KILL", unit)
    machine.wait(f"{unit} is restarted", lambda: machine.pid(unit) not in (0, before) and machine.shown(unit, "ActiveState")["ActiveState"] == "active")
    machine.done("sluice-bench", "probe")


def an_upgrade_restarts_nothing_until_it_is_told_to(machine, package):
    before = {unit: machine.pid(unit) for unit in UNITS}
    machine.done("dpkg", "--install", f"/root/{package}")
    assert {unit: machine.pid(unit) for unit in UNITS} == before
    machine.done("systemctl", "restart", "sluice-controlplane")
    assert machine.pid("sluice-dataplane") == before["sluice-dataplane"]
    machine.done("sluice-bench", "probe")
    machine.done("systemctl", "restart", "sluice-dataplane")
    machine.done("sluice-bench", "probe")


def units_end_in_time_and_well(machine):
    machine.done("systemctl", "stop", *UNITS)
    for unit in UNITS:
        assert machine.shown(unit, "ActiveState", "Result") == {"ActiveState": "inactive", "Result": "success"}, unit


def run(package, folder):
    machine = Machine(folder)
    try:
        machine.boot()
        nothing_runs_that_nobody_has_started(machine)
        a_started_unit_serves(machine)
        for unit in UNITS:
            a_plane_that_hangs_is_ended_and_comes_back(machine, unit)
            a_plane_that_dies_comes_back(machine, unit)
        an_upgrade_restarts_nothing_until_it_is_told_to(machine, os.path.basename(package))
        units_end_in_time_and_well(machine)
    finally:
        machine.stop()
        shutil.rmtree(folder)
