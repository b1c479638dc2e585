#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian package is built, installed and run as its units would, and made an image; units, sluice-tune and samples. Speaks TAP.

deployment_test.py SOURCE VERSION CONTROLPLANE"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy"))
import booted
import build
import image
from planes import PATIENCE_S, Skipped, free_port, missing, need, run_tap

SOURCE, VERSION, CONTROL = sys.argv[1:4]
DEPLOY = f"{SOURCE}/deploy"
folder = tempfile.mkdtemp(prefix="sluice-deployment-")
ROOT = os.geteuid() == 0


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def quickly():
    """Returns an environment for a quick compilation, because only the packaging is tested. With ccache it has the flags of a release build,
    whose objects are cached; without ccache it disables optimization and debugging information."""
    if missing("ccache"):
        return {"DEB_BUILD_OPTIONS": "noopt", "DEB_CXXFLAGS_STRIP": "-g", "MESON_OPTIONS": "-Db_lto=false"}
    flags = {f"DEB_{kind}_SET": "" for kind in ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS")}
    # The cached objects are built without LTO. debhelper sets another HOME and locale, on which objects do not depend.
    cache = run("ccache", "-k", "cache_dir").stdout.strip()
    return {**flags, "MESON_OPTIONS": "-Doptimization=3 -Db_lto=false", "CCACHE_DIR": cache, **build.CACHE}


def the_package_is_built():
    done = run("bash", f"{DEPLOY}/build-package.sh", folder, env={**os.environ, **quickly()})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    packages = glob.glob(f"{folder}/sluice-gateway_{VERSION}_*.deb")
    assert len(packages) == 1, os.listdir(folder)
    listing = run("dpkg-deb", "-c", packages[0]).stdout
    for path in ("usr/bin/sluicectl", "usr/bin/sluice-controlplane", "usr/bin/sluice-dataplane", "usr/bin/sluice-bench", "usr/bin/sluice-tune",
                 "usr/bin/sluice-conformance", "share/man/man1/sluice-conformance.1", "usr/bin/sluice-card-check", "share/man/man1/sluice-card-check.1", "doc/sluice-gateway/cards.md", "doc/sluice-gateway/conformance.md", "etc/sluice/sluice.toml", "systemd/system/sluice-controlplane.service", "systemd/system/sluice-dataplane.service",
                 "systemd/system/sluice-controlplane@.service", "systemd/system/sluice-dataplane@.service",
                 "sysusers.d/sluice.conf", "tmpfiles.d/sluice.conf", "share/man/man8/sluicectl.8", "share/man/man5/sluice.toml.5",
                 "bash-completion/completions/sluicectl", "doc/sluice-gateway/upgrade.md", "doc/sluice-gateway/json-rpc-methods.md", "doc/sluice-gateway/configuration-keys.md",
                 "doc/sluice-gateway/metrics.md", "doc/sluice-gateway/metrics-reference.md", "share/sluice/gdb/sluice-gdb.py",
                 "share/sluice/wireshark/rpcrdma2.lua", "share/sluice/rules.yml", "share/sluice/sluice.json"):
        assert path in listing, f"{path} is not in the package:\n{listing}"
    assert "/etc/sluice/sluice.toml" in run("dpkg-deb", "-I", packages[0], "conffiles").stdout


def calls_of_set(name):
    """Returns the system calls of a set such as @system-service."""
    found = set()
    for line in run("systemd-analyze", "syscall-filter", name).stdout.splitlines()[1:]:
        word = line.strip()
        if word and not word.startswith("#"):
            found |= calls_of_set(word) if word.startswith("@") else {word}
    return found


def refused_by(unit, calls):
    """Returns those of `calls` that the unit's filter refuses."""
    allowed = set()
    with open(f"{DEPLOY}/systemd/{unit}.service", encoding="utf-8") as file:
        for line in re.findall(r"^SystemCallFilter=(.*)$", file.read(), re.M):
            words = set().union(*(calls_of_set(w) if w.startswith("@") else {w} for w in line.lstrip("~").split()))
            allowed = allowed - words if line.startswith("~") else allowed | words
    return calls - allowed


def neither_writes_what_is_the_others(segment):
    """Each plane reads both parts of the segment and writes only its own part. Only the control plane uses the folders of the admin socket and
    of keys."""
    both = f"cat {segment}.control {segment}.data > /dev/null"
    for user, script in (("sluice-dataplane", f"{both} && ! echo x >> {segment}.control && ! rm -f {segment}.control"),
                         ("sluice-controlplane", f"{both} && ! echo x >> {segment}.data && ! rm -f {segment}.data"),
                         ("sluice-dataplane", "! ls /etc/sluice && ! touch /run/sluice/x && ! mv /run/sluice/admin.sock /run/sluice/x"),
                         ("sluice-controlplane", "cat /etc/sluice/sluice.toml > /dev/null && ! mv /run/sluice/segment /run/sluice/x"),
                         ("sluice-controlplane", "cd /etc/sluice/exports.d && cat mine.toml > /dev/null && ! rm -f mine.toml && ! mv added.toml mine.toml"),
                         ("nobody", f"test -S /run/sluice/admin.sock && ! ls /run/sluice/segment && ! cat {segment}.data")):
        done = run("setpriv", f"--reuid={user}", f"--regid={user if user != 'nobody' else 'nogroup'}", "--init-groups", "sh", "-c", script)
        assert done.returncode == 0, (user, script, done)


def it_is_installed_and_each_plane_runs_as_a_user_of_its_own():
    if not ROOT:
        raise Skipped("Only root may install packages.")
    [package] = glob.glob(f"{folder}/sluice-gateway_*.deb")
    done = run("dpkg", "-i", package, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    assert done.returncode == 0, done.stdout + done.stderr
    planes = []
    try:
        for user in ("sluice-controlplane", "sluice-dataplane"):
            assert "sluice" in run("id", "-nG", user).stdout.split(), user
        for group in ("sluice-admin", "sluice-monitor"):
            assert run("getent", "group", group).returncode == 0
        for _ in range(2):  # also when everything already exists
            done = run("systemd-tmpfiles", "--create", "sluice.conf")
            assert done.returncode == 0 and not done.stderr, done
        os.makedirs("/run/sluice-dataplane", exist_ok=True)  # RuntimeDirectory= of the unit
        shutil.chown("/run/sluice-dataplane", "sluice-dataplane", "sluice-dataplane")
        config = f"{folder}/sluice.toml"
        with open("/etc/sluice/sluice.toml", encoding="utf-8") as file:
            text = file.read()
        segment = f"/run/sluice/segment/package-{os.getpid()}"
        assert 'segment = "/run/sluice/segment/sluice"' in text
        assert 'exports_directory = "/etc/sluice/exports.d"' in text
        text = text.replace("/run/sluice/segment/sluice", segment)
        text = text.replace('"/dev/shm/sluice-loopback"', f'"/dev/shm/sluice-package-{os.getpid()}-loopback"')
        text = text.replace("port = 20048", "port = 0").replace("rpcbind = true", "rpcbind = false").replace("127.0.0.1:9464", f"127.0.0.1:{free_port()}")
        text = text.replace('change_group = ""', 'change_group = "sluice-admin"').replace('read_group = ""', 'read_group = "sluice-monitor"')
        with open(config, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(folder, 0o755)

        def start(unit, *words):
            with open(f"{DEPLOY}/systemd/{unit}.service", encoding="utf-8") as file:
                capabilities = re.search(r"^CapabilityBoundingSet=(.*)$", file.read(), re.M).group(1).lower().replace("cap_", "")
            keep = ",".join(f"+{name}" for name in capabilities.split())
            confine = [f"--bounding-set=-all{',' + keep if keep else ''}", f"--inh-caps=-all{',' + keep if keep else ''}", "--no-new-privs"]
            if keep:
                confine.append(f"--ambient-caps={keep}")
            log = open(f"{folder}/{unit}.log", "w", encoding="utf-8")
            watch = ["strace", "-f", "-qq", "-o", f"{folder}/{unit}.calls"] if traced else []
            planes.append(subprocess.Popen([*watch, "setpriv", f"--reuid={unit}", f"--regid={unit}", "--init-groups", *confine, f"/usr/bin/{unit}", *words],
                                           stdout=log, stderr=log, env={**os.environ, **({"RUNTIME_DIRECTORY": f"/run/{unit}"} if unit == "sluice-dataplane" else {})}))

        traced = run("strace", "-f", "-o", "/dev/null", "true").returncode == 0
        start("sluice-controlplane", "--config", config)
        start("sluice-dataplane", "--segment", segment)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status = run("sluicectl", "--json", "status")
            if status.returncode == 0 and json.loads(status.stdout)["data_plane"]["alive"]:
                break
            assert time.monotonic() < deadline, (status, [open(f"{folder}/{u}.log", encoding="utf-8").read() for u in
                                                         ("sluice-controlplane", "sluice-dataplane")])
            time.sleep(0.1)
        assert json.loads(status.stdout)["version"] == VERSION
        probe = run("setpriv", "--reuid=sluice-dataplane", "--regid=sluice-dataplane", "--clear-groups", "sluice-bench", "--fabric",
                    f"/dev/shm/sluice-package-{os.getpid()}-loopback", "probe")
        assert probe.returncode == 0, probe
        with open("/etc/sluice/exports.d/mine.toml", "w", encoding="utf-8") as file:
            file.write('[[export]]\npath = "/mine"\nclients = []\n')
        saved = run("sluicectl", "exports", "add", "/added", "--save")
        assert saved.returncode == 0 and os.path.exists("/etc/sluice/exports.d/added.toml"), saved
        # In a mount namespace of its own, because the file would prevent starts of other tests.
        former = run("unshare", "--mount", "sh", "-ec", "mount -t tmpfs none /var/lib/sluice; : > /var/lib/sluice/saved.toml; exec sluice-controlplane --check --config $0", config)
        assert former.returncode == 2 and "/var/lib/sluice/saved.toml is no longer read" in former.stderr, former
        neither_writes_what_is_the_others(segment)
    finally:
        for plane in planes:
            run("pkill", "-TERM", "-P", str(plane.pid)) if traced else plane.terminate()
        for plane in planes:
            plane.wait()
        for path in glob.glob(f"/dev/shm/sluice-package-{os.getpid()}*"):
            os.unlink(path)
        for left in ("/run/sluice", "/run/sluice-dataplane", "/var/lib/sluice", "/etc/sluice"):
            shutil.rmtree(left, ignore_errors=True)
        run("dpkg", "--purge", "sluice-gateway")
    assert run("dpkg", "-s", "sluice-gateway").returncode != 0
    # System calls that they made, checked against the units' filters; DPDK tries to get I/O ports, but works without.
    for unit, spared in (("sluice-controlplane", set()), ("sluice-dataplane", {"iopl"})) if traced else ():
        with open(f"{folder}/{unit}.calls", encoding="utf-8", errors="replace") as file:
            calls = set(re.findall(r"^\d+ +([a-z_0-9]+)\(", file.read(), re.M))
        # setpriv's own calls, before it executes the plane.
        calls -= {"setresuid", "setresgid", "setuid", "setgid", "setgroups", "capset", "setreuid", "setregid"}
        assert len(calls) > 30, calls
        assert refused_by(unit, calls) <= spared, refused_by(unit, calls)


def an_image_is_made_of_the_package():
    [package] = glob.glob(f"{folder}/sluice-gateway_*.deb")
    image.make(DEPLOY, package, f"{folder}/image")


def its_planes_serve_in_containers():
    if not ROOT:
        raise Skipped("Only root may have containers with capabilities here.")
    if not os.path.exists(f"{folder}/image/index.json"):
        raise Skipped("There is no image.")
    image.run(folder, VERSION)


def systemd_starts_watches_and_restarts_both_planes():
    if not ROOT:
        raise Skipped("Only root may boot a machine.")
    [package] = glob.glob(f"{folder}/sluice-gateway_*.deb")
    booted.make(package, f"{folder}/booted")
    booted.run(package, f"{folder}/booted")


def units_are_well_formed_and_exposed_below_3():
    for unit in ("sluice-controlplane.service", "sluice-dataplane.service"):
        with open(f"{DEPLOY}/systemd/{unit}", encoding="utf-8") as file:
            text = file.read().replace("@instance@", "")
        path = f"{folder}/{unit}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(re.sub(r"^ExecStart=@bindir@/\S+", "ExecStart=/bin/true", re.sub("^Documentation=.*\n", "", text, flags=re.M), flags=re.M))
        verified = run("systemd-analyze", "verify", path)
        assert verified.returncode == 0 and not re.search(rf"{unit}:\d+", verified.stderr), verified
        done = run("systemd-analyze", "security", "--offline=true", "--threshold=30", path)
        level = re.search(r"exposure level for .*?: ([\d.]+)", done.stdout)
        assert done.returncode == 0 and level and float(level.group(1)) < 3.0, done.stdout[-400:] + done.stderr
        for word in ("SystemCallErrorNumber=EPERM", "WatchdogSec=", "Restart=always", "Type=notify", f"User={unit.removesuffix('.service')}\n"):
            assert word in text, (unit, word)


def udev_gives_the_cards_of_vfio_to_the_data_plane():
    """Tests the rule with another device in place of a card, in a separate /dev."""
    if not ROOT:
        raise Skipped("Only root may have a /dev of its own.")
    if sentence := missing("udevadm"):
        raise Skipped(sentence)
    with open(f"{DEPLOY}/systemd/vfio.rules", encoding="utf-8") as file:
        rule = file.read()
    for shipped, tried in (('"vfio"', '"mem"'), ('"[0-9]*"', '"full"'), ('"sluice-dataplane"', '"daemon"')):
        assert shipped in rule, (shipped, rule)
        rule = rule.replace(shipped, tried)
    made = run("unshare", "--mount", "sh", "-ec", """
        mount -t tmpfs none /dev
        mknod /dev/full c 1 7; mknod -m 666 /dev/null c 1 3; mkdir /dev/rules
        cat > /dev/rules/70-sluice-vfio.rules
        mount --bind /dev/rules /etc/udev/rules.d
        udevadm test /sys/class/mem/full >&2
        stat -c "%a %G" /dev/full""", input=rule)
    assert made.stdout == "660 daemon\n", made


def samples_are_accepted():
    """Processors and memory are reduced, because the test machine may have less."""
    smaller = ((r"^cpus = .*\n", ""), (r"^count = \d+", "count = 1"), (r"^size_mib = \d+", "size_mib = 1024"), (r"^hugepages = true", "hugepages = false"))
    for sample in ("sluice.toml", "samples/two-ports.toml"):
        path = f"{folder}/sample.toml"
        with open(f"{DEPLOY}/{sample}", encoding="utf-8") as file:
            text = file.read()
        for key, value in smaller:
            text = re.sub(key, value, text, flags=re.M)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = run(CONTROL, "--check", "--config", path)
        assert done.returncode == 0, done.stderr


def a_fake_host(**files):
    root = tempfile.mkdtemp(dir=folder)
    standard = {"/sys/devices/system/cpu/online": "0-3", "/sys/devices/system/cpu/isolated": "", "/proc/irq/7/smp_affinity_list": "0-3",
                "/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor": "powersave",
                "/proc/meminfo": "HugePages_Total: 10\nHugePages_Free: 4\nHugepagesize: 2048 kB\n", "/proc/sys/vm/nr_hugepages": "10",
                "/sys/class/net/eth1/mtu": "1500", "/sys/class/net/eth1/operstate": "up",
                "/proc/net/fib_trie": "        |-- 192.0.2.1\n           /32 host LOCAL\n"}
    for path, text in {**standard, **files}.items():
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        with open(root + path, "w", encoding="utf-8") as file:
            file.write(text)
    os.makedirs(root + "/dev/shm")
    config = f"{root}/sluice.toml"
    with open(config, "w", encoding="utf-8") as file:
        file.write('[reactor]\ncount = 2\ncpus = [2, 3]\n[device]\ndriver = "softroce"\nhugepages = true\ndpdk_memory_mib = 64\nmtu = 4200\n'
                   'ethdev = "net_af_packet0,iface=eth1"\naddresses = ["192.0.2.1/24"]\n')
    return root, config


def tune(root, config, *words):
    done = run(sys.executable, f"{DEPLOY}/sluice-tune", "--root", root, "--config", config, "--json", *words)
    return done.returncode, {f["what"]: f for f in json.loads(done.stdout)}


def sluice_tune_finds_what_is_wrong_and_sets_what_it_can():
    root, config = a_fake_host()
    code, found = tune(root, config)
    assert code == 1
    for what in ("interrupts", "frequency", "hugepages", "MTU", "addresses"):
        assert found[what]["state"] == "bad" and found[what]["do"], (what, found)
    assert found["isolated processors"]["state"] == "advice" and "isolcpus=2,3" in found["isolated processors"]["do"]
    tune(root, config, "--apply")
    for path, text in (("/proc/irq/7/smp_affinity_list", "0,1"), ("/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "performance"),
                       ("/proc/sys/vm/nr_hugepages", "38"), ("/sys/class/net/eth1/mtu", "4200")):
        with open(root + path, encoding="utf-8") as file:
            assert file.read() == text, path


def a_host_with_a_card(programs=(), **files):
    """A made-up sysfs with an RDMA device of a PCI card. `files` are below the card's folder, unless they begin with a slash."""
    root, config = a_fake_host(**{"/proc/irq/7/smp_affinity_list": "0-1", "/sys/devices/system/cpu/isolated": "2-3",
                                  "/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor": "performance", "/proc/net/fib_trie": ""})
    space = bytearray(256)
    space[0x34], space[0x40], space[0x41], space[0x60], space[0x68] = 0x40, 0x05, 0x60, 0x10, 0x10
    card = "/sys/devices/pci0000:3a/0000:3b:00.0"
    port = f"{card}/infiniband/mlx5_0/ports/1"
    standard = {f"{port}/state": "4: ACTIVE", f"{port}/link_layer": "Ethernet", f"{port}/rate": "100 Gb/sec (4X EDR)", f"{port}/gid_attrs/ndevs/0": "ens1",
                f"{card}/infiniband/mlx5_0/node_type": "1: CA", f"{card}/current_link_width": "16", f"{card}/max_link_width": "16",
                f"{card}/current_link_speed": "16.0 GT/s PCIe", f"{card}/max_link_speed": "16.0 GT/s PCIe", f"{card}/numa_node": "0",
                f"{card}/iommu_group/type": "identity", "/sys/class/net/ens1/mtu": "9000", "/proc/77/comm": "sluice-dataplan",
                "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos": "106", "/proc/77/limits": "Max locked memory  unlimited  unlimited  bytes\n",
                "/sys/devices/system/cpu/cpu2/node0/x": "", "/sys/devices/system/cpu/cpu3/node0/x": "",
                "/usr/sbin/dcb": "#!/bin/sh\n[ $1 = pfc ] && echo 'prio-pfc 0:off 1:off 2:off 3:on 4:off' || echo 'dscp-prio 26:3'\n"}
    given = {(path if path.startswith("/") else f"{card}/{path}"): text for path, text in files.items()}
    for path, text in {**standard, **given}.items():
        if text is None:
            continue
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        with open(root + path, "w", encoding="utf-8") as file:
            file.write(text)
    if f"{card}/config" not in given:
        with open(f"{root}{card}/config", "wb") as file:
            file.write(space)
    else:
        space[0x68] = 0
        with open(f"{root}{card}/config", "wb") as file:
            file.write(space)
    os.chmod(f"{root}/usr/sbin/dcb", 0o755)
    for name, script in programs:
        with open(f"{root}/usr/sbin/{name}", "w", encoding="utf-8") as file:
            file.write(script)
        os.chmod(f"{root}/usr/sbin/{name}", 0o755)
    os.makedirs(f"{root}/sys/class/infiniband")
    os.symlink("../../devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0", f"{root}/sys/class/infiniband/mlx5_0")
    os.symlink("../../../0000:3b:00.0", f"{root}{card}/infiniband/mlx5_0/device")
    with open(config, "w", encoding="utf-8") as file:
        file.write('[reactor]\ncount = 2\ncpus = [2, 3]\n[device]\ndriver = "verbs"\n')
    return root, config


def sluice_tune_is_content_with_a_card_that_is_ready():
    code, found = tune(*a_host_with_a_card())
    of_card = {what: f for what, f in found.items() if what.startswith("mlx5_0/1 ")}
    assert code == 0 and all(f["state"] == "ok" for f in of_card.values()), found
    for what in ("port", "MTU", "RoCE TOS", "PFC and DCQCN", "PCIe", "relaxed ordering", "IOMMU", "NUMA"):
        assert f"mlx5_0/1 {what}" in of_card, (what, of_card)
    assert "path MTU is 4096" in of_card["mlx5_0/1 MTU"]["found"] and "priority 3 (DSCP 26): PFC on" in of_card["mlx5_0/1 PFC and DCQCN"]["found"], of_card
    assert found["locked memory"]["state"] == "ok", found["locked memory"]


def sluice_tune_names_the_command_for_each_defect_of_a_card():
    ecn = "/sys/class/net/ens1/ecn/roce_np/enable/3"
    defects = (
        ("port", "bad", "ip link set ens1 up", {"infiniband/mlx5_0/ports/1/state": "1: DOWN"}),
        ("mode", "bad", "devlink dev param set pci/0000:3b:00.0 name enable_roce value true", {"infiniband/mlx5_0/node_type": "4: RNIC"}),
        ("MTU", "advice", "ip link set ens1 mtu 4200", {"/sys/class/net/ens1/mtu": "1500"}),
        ("RoCE TOS", "advice", "cma_roce_tos -d mlx5_0 -p 1 -t 106", {"/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos": "0"}),
        ("default RoCE mode", "bad", "cma_roce_mode -d mlx5_0 -p 1 -m 2", {"/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode": "IB/RoCE v1"}),
        ("PFC and DCQCN", "bad", "dcb pfc set dev ens1 prio-pfc 3:on", {"/usr/sbin/dcb": "#!/bin/sh\necho 'prio-pfc 3:off'\n", ecn: "0"}),
        ("PFC and DCQCN", "advice", "dcb", {"/usr/sbin/dcb": "#!/bin/sh\nexit 1\n"}),
        ("PCIe", "bad", "lspci -vv -s 0000:3b:00.0", {"current_link_width": "8"}),
        ("PCIe", "bad", "x16 at 16.0 GT/s", {"current_link_speed": "8.0 GT/s PCIe"}),
        ("relaxed ordering", "advice", "setpci -s 0000:3b:00.0 CAP_EXP+8.w=0010:0010", {"config": ""}),
        ("IOMMU", "advice", "iommu=pt", {"iommu_group/type": "DMA-FQ"}),
        ("NUMA", "bad", "[reactor] cpus of node 1: 4-7", {"numa_node": "1", "/sys/devices/system/node/node1/cpulist": "4-7"}))
    for what, state, command, files in defects:
        code, found = tune(*a_host_with_a_card(**files))
        finding = found[f"mlx5_0/1 {what}"]
        assert finding["state"] == state and command in finding["do"], (what, finding)
        assert code == (state == "bad"), (what, code)
    limits = {"/proc/77/limits": "Max locked memory         8388608              8388608              bytes\n"}
    _, found = tune(*a_host_with_a_card(**limits))
    assert found["locked memory"]["state"] == "bad" and "LimitMEMLOCK=infinity" in found["locked memory"]["do"], found
    off = "#!/bin/sh\necho '  name enable_roce type generic'; echo '    cmode driverinit value false'\n"
    _, found = tune(*a_host_with_a_card(programs=[("devlink", off)]))
    assert "devlink dev reload pci/0000:3b:00.0" in found["mlx5_0/1 enable_roce"]["do"], found


def sluice_tune_finds_ecn_marks_that_a_card_does_not_answer():
    counters = "infiniband/mlx5_0/ports/1/hw_counters"
    unanswered = {f"{counters}/np_ecn_marked_roce_packets": "5000", f"{counters}/np_cnp_sent": "0", "/usr/sbin/dcb": "#!/bin/sh\necho 'prio-pfc 3:off'\n"}
    _, found = tune(*a_host_with_a_card(**unanswered))
    assert found["mlx5_0/1 PFC and DCQCN"]["state"] == "bad", found
    _, found = tune(*a_host_with_a_card(**{"/sys/class/net/ens1/ecn/roce_np/enable/3": "1", "/usr/sbin/dcb": "#!/bin/sh\necho 'prio-pfc 3:off'\n"}))
    assert found["mlx5_0/1 PFC and DCQCN"]["state"] == "ok", found


def sluice_tune_looks_at_the_ports_that_are_configured():
    root, config = a_host_with_a_card()
    with open(config, "a", encoding="utf-8") as file:
        file.write('devices = ["mlx5_0/2", "mlx5_9"]\n')
    code, found = tune(root, config)
    assert code == 1 and "`rdma link`" in found["mlx5_0/2 port"]["do"] and found["mlx5_9/1 port"]["state"] == "bad", found
    shutil.rmtree(f"{root}/sys/class/infiniband")
    with open(config, "w", encoding="utf-8") as file:
        file.write('[device]\ndriver = "verbs"\n')
    code, found = tune(root, config)
    assert code == 1 and found["RDMA device"]["state"] == "bad", found


def sluice_tune_reads_no_garbage_of_a_card():
    garbage = {"current_link_width": "", "max_link_speed": "Unknown", "numa_node": "-1", "iommu_group/type": None, "/sys/class/net/ens1/mtu": "",
               "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos": "x", "/proc/77/limits": ""}
    _, found = tune(*a_host_with_a_card(**garbage))
    assert "mlx5_0/1 PCIe" not in found and "mlx5_0/1 MTU" not in found and found["mlx5_0/1 RoCE TOS"]["state"] == "advice", found
    root, config = a_host_with_a_card()
    with open(f"{root}/sys/devices/pci0000:3a/0000:3b:00.0/config", "wb") as file:
        file.write(b"\xff" * 64)  # what others than root can read
    assert "mlx5_0/1 relaxed ordering" not in tune(root, config)[1]


def sluice_tune_is_content_with_a_host_that_is_ready():
    root, config = a_fake_host(**{"/sys/devices/system/cpu/isolated": "2-3", "/proc/irq/7/smp_affinity_list": "0-1",
                                  "/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor": "performance",
                                  "/proc/meminfo": "HugePages_Total: 64\nHugePages_Free: 64\nHugepagesize: 2048 kB\n",
                                  "/sys/class/net/eth1/mtu": "9000", "/proc/net/fib_trie": ""})
    code, found = tune(root, config)
    assert code == 0 and all(f["state"] != "bad" for f in found.values()), found
    shared = {f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": "2-3" for cpu in (2, 3)}
    code, found = tune(*a_fake_host(**shared))
    assert found["reactor processors"]["state"] == "bad" and "share a core" in found["reactor processors"]["found"]


def sluice_tune_looks_for_room_where_the_segment_is():
    root, config = a_fake_host()
    assert "/dev/shm" in tune(root, config)[1]
    with open(config, "r+", encoding="utf-8") as file:
        text = file.read()
        file.seek(0)
        file.write('segment = "/run/sluice/segment/sluice"\n' + text)
    _, found = tune(root, config)
    assert found["/run/sluice/segment"]["state"] == "bad" and "systemd-tmpfiles" in found["/run/sluice/segment"]["do"], found
    assert "/dev/shm" not in found  # softroce has no file in /dev/shm
    os.makedirs(f"{root}/run/sluice/segment")
    _, found = tune(root, config)
    assert found["/run/sluice/segment"]["found"].endswith("MiB free"), found


need("dpkg-buildpackage", "dh", "systemd-analyze", "setpriv")
sys.exit(run_tap([(f.__name__, f) for f in (
    the_package_is_built, it_is_installed_and_each_plane_runs_as_a_user_of_its_own, an_image_is_made_of_the_package,
    its_planes_serve_in_containers, systemd_starts_watches_and_restarts_both_planes, units_are_well_formed_and_exposed_below_3,
    udev_gives_the_cards_of_vfio_to_the_data_plane, samples_are_accepted,
    sluice_tune_finds_what_is_wrong_and_sets_what_it_can, sluice_tune_is_content_with_a_host_that_is_ready,
    sluice_tune_looks_for_room_where_the_segment_is, sluice_tune_is_content_with_a_card_that_is_ready,
    sluice_tune_names_the_command_for_each_defect_of_a_card, sluice_tune_finds_ecn_marks_that_a_card_does_not_answer,
    sluice_tune_looks_at_the_ports_that_are_configured, sluice_tune_reads_no_garbage_of_a_card)]))
