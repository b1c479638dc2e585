# SPDX-License-Identifier: Apache-2.0
"""A Linux guest in a separate network, for tests against a real kernel.

A network namespace holds two links to the guest: `roce`, whose host side belongs to Sluice alone, since a kernel that
owned its address would answer RoCE packets with port-unreachable; and `plain`, for MOUNT over TCP. Everything ends
with the Lab."""
import contextlib
import ctypes
import functools
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from planes_of_tests import Failed, Skipped, need, run_test, skip_all  # noqa: E402,F401

ROCE_HOST, ROCE_GUEST, ROCE_OTHER = "10.77.0.1", "10.77.0.2", "10.77.0.3"
PLAIN_HOST, PLAIN_GUEST = "10.78.0.1", "10.78.0.2"
# A boot takes seconds. Under software emulation a guest with two processors has been seen to hang before its first program.
BOOT_PATIENCE_S, BOOT_ATTEMPTS = 90, 3
MTU = 4200  # carries a path MTU of 4096


def ethdev(interface):
    return f"net_af_packet0,iface={interface},framesz=8192,blocksz=65536,framecnt=512,qdisc_bypass=1"


ETHDEV = ethdev("roce")


# The planes serve files in memory.
EXPORT = """
[memory]
size_mib = 512
[[export]]
path = "/export"
clients = []
root_squash = false
"""


def mac(guest, link):
    return f"52:54:00:00:{guest:02x}:{link:02x}"


def run(*command, **more):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more).stdout


NO_MIRROR = 75  # exit status of the scripts of made_by()


class TimedOut(Failed):
    pass


def made_by(script, packages):
    """Returns the folder that a script makes from packages and prints."""
    done = subprocess.run([f"{HERE}/{script}"], check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode == NO_MIRROR:
        skip_all(f"{packages} cannot be fetched from the Debian mirror that apt-get uses here.")
    if done.returncode != 0:
        raise Failed(f"{script}: {done.stderr[-2000:]}")
    return done.stdout.strip().splitlines()[-1]


@functools.cache
def build_image():
    """Returns the folder with the guest's kernel and initial RAM disk. SLUICE_GUEST_KERNEL chooses the kernel."""
    return made_by("image.sh", "The guest's packages")


def need_lab(*programs):
    """Skips the whole program where a lab is not possible, or where these programs are missing."""
    need("qemu-system-x86_64", "mmdebstrap", "ip", "tcpdump", "tshark", *programs, root_for="network namespaces and taps")
    if not os.path.exists("/dev/net/tun"):
        skip_all("There is no /dev/net/tun for the guest's network cards: load the module tun, or give the device to the container.")
    trial = f"sluice-trial-{os.getpid()}"
    try:
        for command in (["netns", "add", trial], ["-n", trial, "tuntap", "add", "dev", "trial", "mode", "tap"]):
            done = subprocess.run(["ip", *command], text=True, capture_output=True, check=False)
            if done.returncode != 0:
                skip_all(f"Network namespaces with taps are not allowed here (ip {' '.join(command)}: {done.stderr.strip()}).")
    finally:
        subprocess.run(["ip", "netns", "del", trial], capture_output=True, check=False)


def libraries_of(file):
    return re.findall(r"=> (/\S+)", run("ldd", file))


def pack(folder, programs, drivers=()):
    """Copies the programs with the libraries and DPDK drivers they need; returns where DPDK looks for its drivers. Libraries that the
    guest has are left out, because its providers and its loader need libraries of their own release."""
    os.makedirs(f"{folder}/lib")
    os.makedirs(f"{folder}/pmds")
    wanted = set()
    for program in programs:
        shutil.copy(program, folder)
        wanted.update(libraries_of(program))
    where = os.path.dirname(sorted(glob.glob("/usr/lib/*/dpdk/pmds-*/librte_mempool_ring.so.*"))[-1])
    for driver in drivers:
        file, = glob.glob(f"{where}/librte_{driver}.so.*.*")
        # A driver that is loaded under two names would register itself with two copies of its bus.
        name = os.path.basename(file).rsplit(".", 1)[0]
        shutil.copy(file, f"{folder}/lib/{name}")
        os.symlink(f"../lib/{name}", f"{folder}/pmds/{os.path.basename(file)}")
        wanted.update(libraries_of(file))
    with open(f"{build_image()}/libraries", encoding="utf-8") as file:
        in_guest = set(file.read().split())
    for library in wanted:
        if os.path.basename(library) not in in_guest:
            shutil.copy(library, f"{folder}/lib")
    return where


def vhost_backend(link, socket):
    return ["-chardev", f"socket,id=c{link},path={socket},server=on,wait=off", "-netdev", f"vhost-user,id=n{link},chardev=c{link}"]


class Guest:
    """One virtual machine. sh() runs a script in it and returns its output. A link is a tap's name, or the path of a vhost-user socket.
    `behind_iommu` has the indexes of the taps whose cards access memory through an emulated IOMMU, as VFIO requires; the other devices
    use physical addresses."""

    def __init__(self, lab, number, image, links, cpus=1, memory_mib=1024, behind_iommu=()):
        self.lab = lab
        self.dir = f"{lab.dir}/guest{number}"
        os.makedirs(self.dir)
        self.console = f"{self.dir}/console"
        self.next = 1
        self.command = [
            "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-machine", "q35,i8042=off",
            "-smp", str(cpus), "-m", str(memory_mib), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-serial", f"file:{self.console}", "-kernel", f"{image}/vmlinux", "-initrd", f"{image}/initrd.cpio",
            "-append", "console=ttyS0 loglevel=5 panic=-1 mitigations=off nokaslr tsc=reliable" + (" intel_iommu=on" if behind_iommu else ""),
            # The IOMMU has addresses as wide as on a server, and precedes the devices that it translates for.
            *(["-device", "intel-iommu,intremap=on,aw-bits=48"] if behind_iommu else []),
            "-fsdev", f"local,id=host,path={self.dir},security_model=none,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=host,mount_tag=host", "-device", "virtio-rng-pci"]
        for link, wire in enumerate(links):
            vhost = wire.startswith("/")
            self.command += vhost_backend(link, wire) if vhost else ["-netdev", f"tap,id=n{link},ifname={wire},script=no,downscript=no"]
            # MSI-X vectors are disabled, because an interrupt of a vhost-user backend reaches an emulated processor only by the legacy way.
            # event_idx is disabled, because TCG omits memory barriers for a guest with one processor, so sometimes neither the guest nor
            # QEMU's thread sees the last write of the other, and no notification is sent. The next packet sends one; with event_idx no
            # packet does before 65,536 are queued.
            self.command += ["-device", f"virtio-net-pci,netdev=n{link},mac={mac(number, link)},romfile=,host_mtu={MTU},event_idx=off"
                                        + (",vectors=0" if vhost else "")
                                        + (",iommu_platform=on,disable-legacy=on" if link in behind_iommu else "")]
        if any(wire.startswith("/") for wire in links):  # the other process reads and writes the guest's memory
            self.command += ["-object", f"memory-backend-memfd,id=ram,size={memory_mib}M,share=on", "-numa", "node,memdev=ram"]
        self.power_on()

    def power_on(self):
        self.process = self.lab.start(*self.command, log=f"{self.dir}/qemu.log")

    def power_cycle(self):
        """Cuts the guest's power in the middle of its work, and restores it."""
        self.lab.kill(self.process)
        for file in os.listdir(self.dir):
            if file not in ("console", "qemu.log"):
                os.unlink(f"{self.dir}/{file}")
        self.next = 1
        self.power_on()

    def boot(self):
        """Waits until the guest runs scripts. Restarts it if it hangs."""
        for attempt in range(1, BOOT_ATTEMPTS + 1):
            try:
                self.lab.wait("the guest to boot", self.booted, BOOT_PATIENCE_S)
                return
            except TimedOut as error:
                print(f"# {error} (attempt {attempt} of {BOOT_ATTEMPTS})\n--- console\n{self.tail()}", file=sys.stderr, flush=True)
                if attempt == BOOT_ATTEMPTS:
                    raise
                self.lab.kill(self.process)
                self.power_on()

    def booted(self):
        if self.process.poll() is not None:
            with open(f"{self.dir}/qemu.log", encoding="utf-8", errors="replace") as log:
                raise Failed(f"QEMU has ended: {log.read()[-1000:]}")
        return os.path.exists(f"{self.dir}/up")

    def begin(self, script):
        """Starts a script once the guest has booted; end() waits for it. The guest runs one script at a time."""
        self.boot()
        number, self.next = self.next, self.next + 1
        part = f"{self.dir}/{number}.part"
        with open(part, "w", encoding="utf-8") as file:
            file.write(". /etc/setup.sh\n" + script + "\n")
        os.rename(part, f"{self.dir}/{number}.sh")
        return number

    def has_ended(self, number):
        return os.path.exists(f"{self.dir}/{number}.rc")

    def end(self, number, timeout=480):
        try:
            self.lab.wait(f"script {number} of the guest", lambda: self.has_ended(number), timeout)
        except Failed as error:
            raise Failed(f"{error}\n{self.output(number)}\n--- console\n{self.tail()}") from None
        status = int(open(f"{self.dir}/{number}.rc", encoding="ascii").read())
        if status != 0:
            raise Failed(f"status {status} in the guest:\n{self.output(number)}\n--- console\n{self.tail()}")
        return self.output(number)

    def sh(self, script, timeout=480):
        return self.end(self.begin("set -e\n" + script), timeout)

    def output(self, number):
        try:
            return open(f"{self.dir}/{number}.out", encoding="utf-8", errors="replace").read()
        except OSError:
            return ""

    def tail(self, lines=15):
        text = open(self.console, encoding="utf-8", errors="replace").read() if os.path.exists(self.console) else ""
        return "\n".join(text.splitlines()[-lines:])


class Lab:
    def __init__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the exit also ends the lab
        self.name = f"sluice-{os.getpid()}"
        self.dir = tempfile.mkdtemp(prefix="sluice-interop-")
        self.processes = []
        run("ip", "netns", "add", self.name)
        self.ip("link", "set", "lo", "up")

    @contextlib.contextmanager
    def inside(self):
        """Puts this thread into the namespace; sockets that it creates stay there."""
        libc = ctypes.CDLL(None, use_errno=True)

        def enter(path):
            with open(path, "rb") as file:
                if libc.setns(file.fileno(), 0) != 0:  # any kind of namespace
                    raise OSError(ctypes.get_errno(), f"setns {path}")

        with open("/proc/thread-self/ns/net", "rb") as own:
            enter(f"/run/netns/{self.name}")
            try:
                yield
            finally:
                enter(f"/proc/self/fd/{own.fileno()}")

    def netns(self, *command):
        return ("ip", "netns", "exec", self.name) + command

    def ip(self, *words):
        return run("ip", "-n", self.name, *words)

    def add_tap(self, name, mtu=MTU + 100, address=None, bridge=None):
        self.ip("tuntap", "add", "dev", name, "mode", "tap")
        self.ip("link", "set", name, "mtu", str(mtu))
        run(*self.netns("sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1"))
        if address:
            self.ip("addr", "add", address, "dev", name)
        if bridge:
            self.ip("link", "set", name, "master", bridge)
        self.ip("link", "set", name, "up")

    def start(self, *command, log=None, namespace=True):
        output = open(log or f"{self.dir}/log", "a", encoding="utf-8")
        process = subprocess.Popen(self.netns(*command) if namespace else command, stdout=output, stderr=output,
                                   start_new_session=True)
        self.processes.append(process)
        return process

    def kill(self, process, how=signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, how)
            process.wait()

    def wait(self, what, condition, timeout=120):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(0.05)
        raise TimedOut(f"timed out after {timeout} s: {what}")

    def capture(self, tap, file, snap=0, filter_=""):
        """Captures everything on a tap, until stop_capture()."""
        process = self.start("tcpdump", "-i", tap, "-s", str(snap), "--immediate-mode", "-B", "65536", "-U", "-Z", "root", "-w", file, filter_,
                             log=f"{file}.log")
        self.wait("tcpdump listens", lambda: "listening" in open(f"{file}.log", encoding="utf-8").read())
        return process

    def stop_capture(self, process):
        time.sleep(0.5)  # until the kernel has written its buffers
        self.kill(process, signal.SIGINT)

    def close(self):
        for process in reversed(self.processes):
            self.kill(process)
        subprocess.run(["ip", "netns", "del", self.name], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


class Bench:
    """Shared by the tests of a lab: a lab, planes and a guest, which a subclass creates in set_up()."""

    def __init__(self):
        self.lab = Lab()
        self.planes = None
        try:
            self.set_up()
        except BaseException:
            self.close()
            raise

    def close(self):
        if self.planes:
            self.planes.close()
        self.lab.close()

    def sh(self, script, timeout=480):
        return self.guest.sh(script, timeout)

    def packets_of(self, interface="plain"):
        """Returns the number of packets that the guest has sent on a link."""
        link, = json.loads(self.lab.ip("-s", "-j", "link", "show", interface))
        return link["stats64"]["rx"]["packets"]

    def sends(self, interface, packets=300):
        """Waits until the guest has sent that many more packets."""
        before = self.packets_of(interface)
        self.lab.wait(f"the guest to send by {interface}", lambda: self.packets_of(interface) >= before + packets, 240)

    @contextlib.contextmanager
    def while_it_runs(self, script):
        """Runs a script in the guest, whose function `stop_requested` is true once the body is done."""
        stop = f"{self.guest.dir}/stop"
        job = self.guest.begin(f"set -e\nstop_requested() {{ [ -e /mnt/host/stop ]; }}\n{script}")
        try:
            yield
        finally:
            open(stop, "w", encoding="ascii").close()
            try:
                print("# " + self.guest.end(job).strip())
            finally:
                os.unlink(stop)

    @contextlib.contextmanager
    def under_random_io(self, file, seed, interface="roce"):
        """Has the guest read and write the file at random, and compare every byte, while the body runs."""
        with self.while_it_runs(f"random_io {file} 1000 {seed} & running=$!\n"
                                "until stop_requested || ! kill -0 $running; do usleep 100000; done 2> /dev/null\n"
                                f"kill $running || true; wait $running; drop_caches; rm {file}"):
            self.sends(interface)
            yield
            self.sends(interface)

    def connect_guest(self, image):
        """Starts the guest on both links and waits until it reaches the planes."""
        self.guest = Guest(self.lab, 1, image, ["roce", "plain"])
        self.guest.sh(f"rdma_link {mac(1, 0)} {ROCE_GUEST}/24 {MTU}\nplain_link {mac(1, 1)} {PLAIN_GUEST}/24")
        self.guest.sh(f"for i in $(seq 50); do ping -c 1 -W 1 {ROCE_HOST} && exit 0; sleep 0.1; done; exit 1")


def state_of(bench):
    """Returns output that helps to explain a failure. A kernel panic of the guest is not an error of the planes."""
    planes = "--- planes\n" + bench.planes.state() if bench.planes else ""
    guest = getattr(bench, "guest", None)
    return planes + (f"\n--- console\n{guest.tail(60)}" if guest else "")


KERNEL_DEFECT = r"BUG:|Oops|general protection|WARNING: CPU"


def kernel_reports(lab):
    """Returns the lines of the guests' consoles by which their kernels report defects of their own. The console has messages of the level
    of warnings and above."""
    found = []
    for console in sorted(glob.glob(f"{lab.dir}/guest*/console")):
        with open(console, encoding="utf-8", errors="replace") as file:
            found += [f"{os.path.basename(os.path.dirname(console))}: {line.strip()}" for line in file if re.search(KERNEL_DEFECT, line)]
    return found


def run_tests(bench, tests, around=None):
    """Runs each test on the bench and reports in TAP; returns how many tests failed. The last test fails if the kernel of a guest has
    reported a defect, because results after it are worth nothing. `around(test)` is a context for each. Files of the bench are kept in the folder SLUICE_INTEROP_KEEP, if set."""
    def within(test):
        with around(test) if around else contextlib.nullcontext():
            test(bench)

    def the_kernels_of_the_guests_report_no_defect(_):
        if not glob.glob(f"{bench.lab.dir}/guest*/console"):
            raise Skipped("No guest was started.")
        reports = kernel_reports(bench.lab)
        if reports:
            raise Failed("\n".join(reports))

    tests = [*tests, the_kernels_of_the_guests_report_no_defect]
    print(f"1..{len(tests)}", flush=True)
    try:
        return [run_test(number, test.__name__, functools.partial(within, test), lambda: state_of(bench))
                for number, test in enumerate(tests, 1)].count(False)
    finally:
        if os.environ.get("SLUICE_INTEROP_KEEP"):
            shutil.copytree(bench.lab.dir, os.environ["SLUICE_INTEROP_KEEP"], dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("*.sock"))
        bench.close()


class Planes:
    """Both Sluice planes, by default over softroce on the tap `roce` of a Lab."""

    def __init__(self, lab, control, data, ctl, serves=EXPORT, *, name="", interface="roce", address=ROCE_HOST, mount_port=20048,
                 device=None, metrics=""):
        self.lab, self.control_path, self.data_path, self.ctl_path = lab, control, data, ctl
        self.segment = lab.name + name
        self.socket = f"{lab.dir}/admin{name}.sock"
        self.config = f"{lab.dir}/sluice{name}.toml"
        self.log = f"{lab.dir}/planes{name}.log"
        device = device or f'driver = "softroce"\nethdev = "{ethdev(interface)}"\naddresses = ["{address}/24"]\nmtu = {MTU}'
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(f"""
segment = "{self.segment}"
log_level = "debug"
[device]
{device}
{serves}
[admin]
socket = "{self.socket}"
[metrics]
address = "{metrics}"
[mount]
port = {mount_port}
rpcbind = false
""")
        self.control = self.data = None

    def start_control(self):
        self.control = self.lab.start(self.control_path, "--config", self.config, log=self.log)

    def start_data(self):
        self.data = self.lab.start(self.data_path, "--segment", self.segment, log=self.log)

    def start(self):
        self.start_control()
        self.start_data()
        self.lab.wait("both planes are up", self.up)

    def up(self):
        done = subprocess.run(self.lab.netns(self.ctl_path, "--socket", self.socket, "--json", "status"),
                              capture_output=True, text=True, check=False)
        return done.returncode == 0 and json.loads(done.stdout)["data_plane"]["alive"]

    def state(self):
        """Returns output that helps to explain a failure."""
        shown = self.text().splitlines()[-15:]
        for what in (["counters"], ["upstreams", "stats"]):
            done = subprocess.run(self.lab.netns(self.ctl_path, "--socket", self.socket, *what), capture_output=True, text=True, check=False)
            shown += done.stdout.splitlines()
        return "\n".join(shown)

    def text(self):
        return open(self.log, encoding="utf-8", errors="replace").read() if os.path.exists(self.log) else ""

    def close(self):
        for process in (self.data, self.control):
            if process:
                self.lab.kill(process)
        for leftover in (f"/dev/shm/{self.segment}.control", f"/dev/shm/{self.segment}.data"):
            if os.path.exists(leftover):
                os.unlink(leftover)
