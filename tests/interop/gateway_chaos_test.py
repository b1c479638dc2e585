#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gateway under random faults. A Linux guest has mounted nfs-ganesha through it with NFS 3 and 4.1, and in a long run with 4.0. It writes
and verifies files with fio, and creates, removes, renames, links and locks names with guest/once.c, which compares each result with a model.
No acknowledged operation is lost, none is executed twice, and no program gets an error. Speaks TAP.

gateway_chaos_test.py CONTROLPLANE DATAPLANE SLUICECTL [FAULT...]   (FAULT: only these kinds, for example upstream_is_killed)

SLUICE_CHAOS_SECONDS   minimum duration; each kind of fault occurs at least once
SLUICE_CHAOS_SEED      determines the faults, their order and their lengths; printed

One guarantee is impossible. If a process is killed after it has executed a call and before it has sent the reply, its successor executes the
call again, and MKDIR returns "exists", to a Linux client without a gateway too. The program accepts this for an operation that was in
progress during such a kill, and only if the directory is in the state after a success:

- nfs-ganesha is killed: its duplicate request cache (3, 4.0) and the reply caches of its sessions (4.1) are lost. All versions.
- The data plane is killed: the gateway's duplicate request cache is lost. Versions 3 and 4.0; for 4.1 the sessions are at the upstream.

Every other fault keeps these caches, and the program accepts no error."""
import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gateway_bench import UPSTREAM, GatewayBench, Upstream, mount_command  # noqa: E402
from lab import Failed, mac, need_lab, run_tests  # noqa: E402
from relay import CALLS, REPLIES, Relay  # noqa: E402

RELAY_PORT = 2050
PROGRAMS = {"3": 3, "4.1": 3}  # instances of once in each mount
# A restarted server waits for 4.0's clients for the whole grace period, which is too long for a short run.
LONG_S, PROGRAMS_OF_LONG_RUN = 300, {"3": 3, "4.0": 2, "4.1": 2}
# A client waits ten seconds for a reply, not a minute, before it reconnects and repeats its calls.
# After its link was down, rxe of Linux 6.1 sometimes fails to retransmit, and only a reconnection resolves this.
PATIENCE = ",timeo=100"
ATTEMPTS = 20  # for a fault that requires a certain call to be outstanding

LOAD = """
report() { echo "$1" >> /mnt/host/failed; }
verified() {  # NAME FOLDER: files that are written directly, and through the cache
  local common="--directory=$2 --size=4m --bsrange=4k-64k --ioengine=libaio --verify=crc32c --verify_fatal=1 --verify_state_save=0"
  while ! stop_requested; do
    fio --name=direct $common --rw=randrw --direct=1 --iodepth=4 --number_ios=150 > /tmp/fio.$1 2>&1 &&
    fio --name=cached $common --rw=randwrite --end_fsync=1 --do_verify=0 > /tmp/fio.$1 2>&1 &&
    echo 3 > /proc/sys/vm/drop_caches &&
    fio --name=cached $common --rw=randwrite --verify_only=1 > /tmp/fio.$1 2>&1 || { report "fio $1"; cat /tmp/fio.$1; return 1; }
    echo . >> /mnt/host/verified.$1
  done
}
names() {  # NAME ARGUMENTS: until the signal
  local name=$1; shift
  once "$@" > /mnt/host/left.$name 2> /mnt/host/said.$name || { report "once $name"; cat /mnt/host/said.$name; return 1; }
}
"""
# The guest runs one script at a time, so further commands are passed in a file.
OBEY = """
until stop_requested; do
  if [ -e /mnt/host/order ]; then bash -c ". /etc/setup.sh; $(cat /mnt/host/order)"; rm /mnt/host/order; fi
  usleep 100000
done
killall -TERM once || true
status=0
for job in $jobs; do wait $job || status=1; done
test $status = 0
"""


class ChaosBench(GatewayBench):
    def __init__(self, programs, faults):
        self.faults = faults
        super().__init__(*programs, None)

    def new_upstream(self):
        # A fault must not last longer than the lease, which would be lost. Reclaiming may take time on a slow guest.
        return Upstream(self.lab, lease_s=120, grace_s=30)

    def configuration(self):
        self.relay = Relay(self.lab, RELAY_PORT, self.upstream.port)
        return UPSTREAM.format(address="127.0.0.1", nfs=RELAY_PORT, mount=0)


class Chaos:
    """One run: the load, and the faults, which are the methods whose names begin with fault_."""

    def __init__(self, b, seed, seconds):
        self.b = b
        self.seconds = seconds
        self.programs = PROGRAMS if seconds < LONG_S else PROGRAMS_OF_LONG_RUN
        self.random = random.Random(seed)
        kinds = sorted(name[6:] for name in dir(self) if name.startswith("fault_"))
        self.kinds = [kind for kind in kinds if not b.faults or kind in b.faults]
        self.seed = seed
        self.happened = collections.Counter()
        self.counted, self.last = collections.Counter(), collections.Counter()
        self.lost_replies = 0
        self.started = time.monotonic()

    # --- Files shared with the guest

    def path(self, name):
        return f"{self.b.guest.dir}/{name}"

    def read(self, name):
        try:
            with open(self.path(name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def write(self, name, text):
        """Writes in place, because the guest has the file open."""
        with open(self.path(name), "r+" if os.path.exists(self.path(name)) else "w", encoding="ascii") as file:
            file.write(text)

    def workers(self):
        return [f"{version}-{number}" for version, count in self.programs.items() for number in range(count)]

    def done(self):
        return {worker: int(self.read(f"progress.{worker}") or 0) for worker in self.workers()}

    # --- Waiting

    def wait(self, what, condition):
        def look():
            if failed := self.read("failed"):
                raise Failed(f"while waiting for {what}: {failed.strip()} failed\n{self.said()}")
            return condition()
        return self.b.lab.wait(what, look, 240)

    def said(self):
        return "\n".join(f"{name}: {self.read(name).strip()}" for name in sorted(os.listdir(self.b.guest.dir)) if name.startswith("said."))

    def pause(self, least, most):
        time.sleep(self.random.uniform(least, most))

    def goes_on(self):
        """Waits until every program makes progress."""
        before = self.done()
        self.wait(f"all programs to go on; they had done {before}", lambda: all(now >= before[worker] + 3 for worker, now in self.done().items()))

    def count(self):
        """Adds up the gateway's counters, which restart at zero with a new data plane."""
        now = collections.Counter({name: value for name, value in self.b.counters().items() if isinstance(value, int)})
        for name, value in now.items():
            self.counted[name] += value - self.last[name] if value >= self.last[name] else value
        self.last = now

    def rises(self, counter, by=1):
        before = self.b.counters()[counter]
        return lambda: self.b.counters()[counter] >= before + by

    def attempts(self, what, attempt):
        """Repeats `attempt` until it succeeds, at most ATTEMPTS times."""
        for _ in range(ATTEMPTS):
            if attempt():
                return
        raise Failed(f"{ATTEMPTS} attempts at {what} came to nothing: {self.b.counters()}")

    @contextlib.contextmanager
    def doubt(self, *versions):
        """The process that caches the replies of these versions is killed and restarted in the body."""
        def step():
            for name in (f"doubt.{version}" for version in versions if version in self.programs):
                self.write(name, f"{int(self.read(name)) + 1}\n")
        step()
        yield
        step()

    # --- Faults

    def reply_is_held(self):
        self.wait("the upstream to have executed what may be executed once only", self.b.relay.replies_held)

    @contextlib.contextmanager
    def at_a_bad_time(self):
        """In half of the cases the body begins when calls have been executed whose replies have not been delivered."""
        if self.random.random() < 0.5:
            yield
            return
        with self.b.relay.trapping():
            self.reply_is_held()
            yield

    def fault_upstream_is_killed(self):
        self.goes_on()  # holders of locks have to be connected to reclaim them
        with self.doubt(*self.programs):
            with self.at_a_bad_time():
                self.b.upstream.stop()
            self.b.relay.refuse()
            self.pause(0, 1.5)
            self.b.upstream.start()
            self.b.relay.listen()

    def fault_upstream_is_stopped(self):
        group = self.b.upstream.process.pid
        os.killpg(group, signal.SIGSTOP)
        try:
            self.wait("calls to wait for the upstream", lambda: self.b.upstreams()["outstanding"] > 0)
            self.pause(0.5, self.random.choice((2, 2, 20)))
        finally:
            os.killpg(group, signal.SIGCONT)

    def fault_upstream_connections_are_cut(self):
        def attempt():
            resent = self.rises("resent")
            self.pause(0, 0.3)
            self.b.relay.cut()
            self.goes_on()
            return resent()
        for _ in range(self.random.randint(1, 3)):
            self.attempts("a call that is sent again", attempt)

    def fault_replies_of_the_upstream_are_lost(self):
        resent = self.rises("resent")
        with self.b.relay.trapping():
            self.reply_is_held()
            self.lost_replies += self.b.relay.cut()
        self.wait("these calls to be sent again", resent)

    def fault_upstream_path_stalls(self):
        with self.b.relay.holding(*self.random.choice(((CALLS,), (REPLIES,), (CALLS, REPLIES)))):
            self.wait("calls to be held up", self.b.relay.bytes_held)
            self.pause(0.5, self.random.choice((3, 3, 20)))

    def fault_upstream_path_is_slow(self):
        with self.b.relay.delaying(self.random.uniform(0.02, 0.2)):
            self.pause(1, 4)

    def close_clients(self):
        for connection in self.b.connections():  # the connection may end before the command
            subprocess.run(self.b.ctl("connections", "close", str(connection["reactor"]), str(connection["connection"])), check=False,
                           capture_output=True)

    def fault_clients_reconnect_before_their_replies(self):
        """Clients repeat their calls while the first ones have been executed but not answered."""
        def attempt():
            replayed = self.rises("replayed")
            with self.b.relay.trapping():
                self.reply_is_held()
                abandoned, waits = self.rises("abandoned"), self.rises("waits_earlier")
                self.close_clients()
                self.wait("the gateway to see them end", abandoned)
                self.wait("calls to come again", waits)
                if self.random.random() < 0.5:
                    self.lost_replies += self.b.relay.cut()
            self.goes_on()
            return replayed()
        self.goes_on()  # so that clients are connected
        self.attempts("a call that comes again", attempt)

    def fault_client_link_is_down(self):
        self.b.lab.ip("link", "set", "roce", "down")
        self.pause(0.5, self.random.choice((2, 12)))
        self.b.lab.ip("link", "set", "roce", "up")

    def order(self, text):
        with open(self.path("order.part"), "w", encoding="ascii") as file:
            file.write(text)
        os.rename(self.path("order.part"), self.path("order"))
        self.wait("the guest to obey", lambda: not os.path.exists(self.path("order")))

    def fault_client_link_loses_packets(self):
        self.order(f"lossy $(card {mac(1, 0)}) {self.random.choice((1, 5))}")
        self.pause(2, 5)
        self.order(f"lossless $(card {mac(1, 0)})")

    def fault_control_plane_is_killed(self):
        self.b.lab.kill(self.b.planes.control)
        self.pause(0, 2)
        if self.random.random() < 0.5:
            self.b.relay.cut()
            self.pause(0, 1)
        self.b.planes.start_control()
        self.wait("the control plane to be up", self.b.planes.up)

    def fault_data_plane_is_killed(self):
        self.kill_planes([self.b.planes.data], [self.b.planes.start_data])

    def fault_one_plane_is_stopped(self):
        group = self.random.choice((self.b.planes.data, self.b.planes.control)).pid
        os.killpg(group, signal.SIGSTOP)
        try:
            self.pause(0.5, self.random.choice((2, 12)))
        finally:
            os.killpg(group, signal.SIGCONT)
        self.wait("both planes to be up", self.b.planes.up)

    def fault_both_planes_are_killed(self):
        planes = self.b.planes
        self.kill_planes(self.shuffled(planes.control, planes.data), self.shuffled(planes.start_control, planes.start_data))

    def kill_planes(self, killed, started):
        self.count()
        with self.doubt("3", "4.0"):
            with self.at_a_bad_time():
                for process in killed:
                    self.b.lab.kill(process)
                    self.pause(0, 1)
            for start in started:
                start()
                self.pause(0, 1)
            self.wait("both planes to be up", self.b.planes.up)

    def shuffled(self, *what):
        return self.random.sample(what, len(what))

    # --- The run

    def drawn(self):
        """Yields all kinds in random order, repeatedly."""
        while True:
            yield from self.random.sample(self.kinds, len(self.kinds))

    def happens(self, kind):
        begun = time.monotonic()
        getattr(self, f"fault_{kind}")()
        ended = time.monotonic()
        self.happened[kind] += 1
        # Sometimes the next fault follows before recovery ends, but not while locks are reclaimed, because the upstream limits the time for that.
        waits = kind == "upstream_is_killed" or self.random.random() < 0.7
        if waits:
            self.goes_on()
        after = f", went on after {time.monotonic() - ended:.1f} s" if waits else ""
        print(f"# {begun - self.started:6.1f} s {kind.replace('_', ' ')} for {ended - begun:.1f} s{after}", flush=True)
        self.count()

    def all_happen(self):
        for kind in self.drawn():
            if len(self.happened) == len(self.kinds) and time.monotonic() - self.started > self.seconds:
                break
            self.happens(kind)
        self.goes_on()

    def folders(self):
        return " ".join(f"/mnt/v{version}" for version in self.programs)

    def mounts(self):
        vfs = f"{self.b.upstream.dir}/vfs"
        commands = [mount_command(version, at=f"/mnt/v{version}", more=PATIENCE).replace("VFS_PATH", vfs) for version in self.programs]
        # A second mount of the export, which has to query the server for locks of the first.
        prepared = f"modprobe -a sch_netem sch_ingress ifb cls_matchall act_mirred; mkdir -p {self.folders()} /mnt/probe"
        return "\n".join([prepared, *commands, mount_command("4.1", at="/mnt/probe", more=PATIENCE + ",nosharecache")])

    def load(self):
        lines = ["jobs="]
        for number, worker in enumerate(self.workers()):
            version = worker.split("-")[0]
            folder = f"/mnt/v{version}/once-{worker}"
            locks = f" {folder}.locked /mnt/probe/once-{worker}.locked" if version != "3" else ""
            lines.append(f"mkdir {folder}; names {worker} {folder} {self.seed + number} /mnt/host/doubt.{version} /mnt/host/progress.{worker}{locks} & "
                         "jobs=\"$jobs $!\"")
        for version in self.programs:
            lines.append(f"mkdir /mnt/v{version}/fio-{version}; verified {version} /mnt/v{version}/fio-{version} & jobs=\"$jobs $!\"")
        return "\n".join([LOAD, *lines, OBEY])

    def check(self):
        for version in self.programs:
            if not self.read(f"verified.{version}"):
                raise Failed(f"fio has verified nothing under version {version}")
        for worker in self.workers():
            folder = f"{self.b.upstream.dir}/vfs/once-{worker}"
            found = {f"{entry.name} {'directory' if entry.is_dir() else 'file'}" for entry in os.scandir(folder)}
            if found != set(self.read(f"left.{worker}").splitlines()):
                raise Failed(f"{worker} has left {self.read(f'left.{worker}').split()}, the upstream has {found}")
        if self.b.relay.troubles:
            raise Failed(f"the relay: {self.b.relay.troubles}")
        if self.b.faults:
            return
        for counter in ("replayed", "resent", "orphans", "abandoned", "disconnects"):
            if not self.counted[counter]:
                raise Failed(f"{counter} is zero: {dict(self.counted)}")
        if not self.lost_replies:
            raise Failed("no reply was lost")

    def run(self):
        self.b.sh(self.mounts())
        for version in self.programs:
            self.write(f"doubt.{version}", "0\n")
        self.count()
        job = self.b.guest.begin("set -e\nstop_requested() { [ -e /mnt/host/stop ]; }\n" + self.load())
        self.wait("all programs to begin", lambda: all(self.done().values()))
        self.all_happen()
        self.write("stop", "")
        self.b.guest.end(job)
        self.b.sh(f"umount /mnt/probe {self.folders()}\n! dmesg | grep -iE 'reclaim failed|unhandled error'")
        print(f"# {self.said()}".replace("\n", "\n# "))
        print(f"# faults: {dict(self.happened)}\n# counters: {dict(+self.counted)}\n# replies lost: {self.lost_replies}")
        self.check()


def nothing_is_lost_or_done_twice(b):
    seed = int(os.environ.get("SLUICE_CHAOS_SEED") or random.randrange(10**6))
    seconds = float(os.environ.get("SLUICE_CHAOS_SECONDS") or 60)
    print(f"# SLUICE_CHAOS_SEED={seed}", flush=True)
    Chaos(b, seed, seconds).run()


def main():
    need_lab("ganesha.nfsd")
    bench = ChaosBench(sys.argv[1:4], sys.argv[4:])
    return 1 if run_tests(bench, [nothing_is_lost_or_done_twice]) else 0


if __name__ == "__main__":
    sys.exit(main())
