#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gateway between an unmodified Linux kernel and nfs-ganesha: NFS/RDMA in the guest, TCP to the upstream. Speaks TAP.

gateway_test.py CONTROLPLANE DATAPLANE SLUICECTL BINDINGS_TEST [NAME...]   (NAME: only those tests)"""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gateway_bench import NFS_PORT, TREE, UPSTREAM, GatewayBench, Mounted, mount_command  # noqa: E402
from lab import PLAIN_GUEST, PLAIN_HOST, ROCE_GUEST, ROCE_HOST, Failed, need_lab, run, run_tests  # noqa: E402

def tree(version):
    def test(b):
        with Mounted(b, version):
            b.sh(TREE)
    test.__name__ = f"files_and_folders_over_version_{version.replace('.', '_')}"
    return test


class OtherMounted:
    """A second mount in the guest, version 4.0 over TCP directly to the upstream, which sees another client."""

    def __init__(self, b):
        self.b = b

    def __enter__(self):
        self.b.sh(f"mount -t nfs -o proto=tcp,port={NFS_PORT},vers=4.0 {PLAIN_HOST}:/vfs /mnt/other")

    def __exit__(self, *ignored):
        self.b.guest.sh("umount /mnt/other")


def exports_of_the_upstream_are_listed(b):
    """EXPORT of MOUNT version 3 at the gateway, which finds the upstream's MOUNT through its rpcbind."""
    call = struct.pack(">10I", 7, 0, 2, 100005, 3, 5, 0, 0, 0, 0)
    script = ("import socket, sys\ns = socket.create_connection(('127.0.0.1', 20048))\n"
              f"s.sendall(bytes.fromhex('{(struct.pack('>I', 1 << 31 | len(call)) + call).hex()}'))\nprint(s.recv(65536).hex())")
    done = subprocess.run(b.lab.netns(sys.executable, "-c", script), capture_output=True, text=True, check=True)
    reply = bytes.fromhex(done.stdout.strip())
    for path in ("/mem", f"{b.upstream.dir}/vfs"):
        if struct.pack(">I", len(path)) + path.encode() not in reply:
            raise Failed(f"{path} is not in {reply}")


def files_of_the_upstreams_own_memory(b):
    """nfs-ganesha's FSAL_MEM, whose files have at most 2 MiB."""
    for version in ("3", "4.1"):
        with Mounted(b, version, "/mem"):
            b.sh("""
mkdir /mnt/nfs/of; cd /mnt/nfs/of
for n in 1 4095 4097 65537 1048576; do head -c $n /dev/urandom > /tmp/data; cp /tmp/data f$n; drop_caches; cmp /tmp/data f$n; done
ln -s f1 link; test "$(readlink link)" = f1; mv f1 g; test "$(ls | wc -l)" = 6; cd /; rm -r /mnt/nfs/of""")


def locks_between_two_mounts(b):
    """Locks byte ranges and whole files from two clients of the upstream."""
    with Mounted(b, "4.1"), OtherMounted(b):
        for kind in ("fcntl", "flock"):
            b.sh(f"""
rm -f /tmp/held; locks {kind} /mnt/nfs/locked 0 hold 4 > /tmp/held &
for i in $(seq 100); do grep -q held /tmp/held && break; sleep 0.1; done; grep -q held /tmp/held
status=0; locks {kind} /mnt/other/locked 0 try > /tmp/tried || status=$?; test $status = 2
locks {kind} /mnt/other/locked 0 wait | grep -q had; wait
locks {kind} /mnt/other/locked 0 try; locks {kind} /mnt/nfs/locked 0 try""")
        b.sh("""
rm -f /tmp/held; locks fcntl /mnt/other/locked 10 hold 3 > /tmp/held &
for i in $(seq 100); do grep -q held /tmp/held && break; sleep 0.1; done
locks fcntl /mnt/nfs/locked 11 try
status=0; locks fcntl /mnt/nfs/locked 10 try > /tmp/tried || status=$?; test $status = 2; wait""")


def a_delegation_of_linux_is_recalled_in_the_reverse_direction(b):
    """The upstream is the guest's own kernel, because nfs-ganesha grants no delegations with the file systems of this lab. Its
    CB_RECALL goes over TCP to the gateway and over RDMA to the client."""
    b.sh("nfsd_on_tcp")
    b.serve(UPSTREAM.format(address=PLAIN_GUEST, nfs=2049, mount=0))
    # The gateway itself captures, because the tap does not see the frames that the gateway sends.
    packets = f"{b.lab.dir}/recall.pcapng"
    capture = b.lab.start(b.planes.ctl_path, "--socket", b.planes.socket, "capture", packets, "--seconds", "20", "--snap", "4200")
    b.lab.wait("packets are captured", lambda: os.path.exists(packets))
    text = b.sh(mount_command("4.1", "/") + """
mount -t nfs -o proto=tcp,vers=4.0 127.0.0.1:/ /mnt/other
echo one > /export/delegated
for i in 1 2 3; do cat /mnt/nfs/delegated > /dev/null; done
exec 3< /mnt/nfs/delegated
echo "two and more" > /mnt/other/delegated
exec 3<&-; cat /mnt/nfs/delegated
umount /mnt/other; umount /mnt/nfs""")
    if "two and more" not in text:
        raise Failed(f"the client read: {text}")
    # The gateway's call: CALL, RPC version 2, the callback program of Linux clients, version 1, CB_COMPOUND. Then the client
    # returns the delegation.
    call_back = "00:00:00:00:00:00:00:02:40:00:00:00:00:00:00:01:00:00:00:01"
    wanted = {"CB_COMPOUND": f"ip.src == {ROCE_HOST} && frame contains {call_back}", "DELEGRETURN": f"ip.src == {ROCE_GUEST} && nfs.opcode == 8"}

    def numbers(expression):
        """Returns the number of matching frames captured so far."""
        done = subprocess.run(["tshark", "-r", packets, "-Y", expression, "-T", "fields", "-e", "frame.number"],
                              capture_output=True, text=True, check=False)
        return [int(n) for n in done.stdout.split()]

    while True:
        ended = capture.poll() is not None
        frames = {name: numbers(expression) for name, expression in wanted.items()}
        if all(frames.values()) or ended:
            break
    if not all(frames.values()) or frames["CB_COMPOUND"][0] > frames["DELEGRETURN"][0]:
        raise Failed(f"on the wire: {frames}; counters: {b.counters()}")


def access_control_lists(b):
    """Access control lists of version 4; the server is the guest's own kernel, which stores them as POSIX lists. Needs the test that
    starts it to run first."""
    b.serve(UPSTREAM.format(address=PLAIN_GUEST, nfs=2049, mount=0))
    b.sh(mount_command("4.1", "/") + """
echo secret > /mnt/nfs/listed; chmod 600 /mnt/nfs/listed
nfs4_setfacl -a A::1234:R /mnt/nfs/listed
nfs4_getfacl /mnt/nfs/listed | grep -q '^A::1234:'
getfacl -n /export/listed 2> /dev/null | grep -q '^user:1234:r--'
setfacl -m u:4321:rw /export/listed; drop_caches
nfs4_getfacl /mnt/nfs/listed > /tmp/listed; grep -q '^A::4321:' /tmp/listed; grep -q '^A::1234:' /tmp/listed
for i in $(seq 2000 20 2280); do
  for user in $(seq $i $((i + 19))); do echo A::$user:R; done > /tmp/more
  nfs4_setfacl -A /tmp/more /mnt/nfs/listed || break
done
test "$(nfs4_getfacl /mnt/nfs/listed | grep -c '^A::2')" -gt 100
nfs4_setfacl -x A::1234:R /mnt/nfs/listed || nfs4_setfacl -s A::OWNER@:RW /mnt/nfs/listed
umount /mnt/nfs""")


def open_files_are_renamed_and_removed(b):
    for version in ("3", "4.2"):
        with Mounted(b, version):
            b.sh("""
echo content > /mnt/nfs/a; exec 5< /mnt/nfs/a; mv /mnt/nfs/a /mnt/nfs/b; rm /mnt/nfs/b
test "$(cat <&5)" = content; exec 5<&-; test ! -e /mnt/nfs/b
mkdir /mnt/nfs/x /mnt/nfs/y; echo content > /mnt/nfs/x/0; names rename /mnt/nfs/x /mnt/nfs/y 100; names link /mnt/nfs/x/100 /mnt/nfs/y 100
test "$(ls /mnt/nfs/y | wc -l)" = 100; test "$(cat /mnt/nfs/y/77)" = content; rm -r /mnt/nfs/x /mnt/nfs/y""")


def sparse_files_and_copies(b):
    """ALLOCATE, DEALLOCATE, SEEK and COPY as far as the upstream supports them; the client emulates the others. The contents are
    checked."""
    with Mounted(b, "4.2"):
        b.sh("""
dd if=/dev/zero of=/mnt/nfs/sparse bs=1 count=1 seek=8000000 2> /dev/null
echo far | dd of=/mnt/nfs/sparse bs=1 seek=5000000 conv=notrunc 2> /dev/null
drop_caches; test "$(dd if=/mnt/nfs/sparse bs=1 skip=5000000 count=3 2> /dev/null)" = far
test "$(head -c 4999999 /mnt/nfs/sparse | tr -d '\\000' | wc -c)" = 0
head -c 3000000 /dev/urandom > /mnt/nfs/from; cp /mnt/nfs/from /mnt/nfs/to; drop_caches; cmp /mnt/nfs/from /mnt/nfs/to
fallocate -l 100000 /mnt/nfs/room || echo "no ALLOCATE"
fallocate -p -o 4096 -l 4096 /mnt/nfs/to || echo "no DEALLOCATE"
rm -f /mnt/nfs/sparse /mnt/nfs/from /mnt/nfs/to /mnt/nfs/room""")


def compounds_are_stepped_over_as_wireshark_does(b):
    """COMPOUNDs of a Linux client and nfs-ganesha, captured between the gateway and the upstream."""
    packets = f"{b.lab.dir}/compounds.pcap"
    capture = b.lab.capture("lo", packets, filter_=f"tcp port {NFS_PORT}")
    for version in ("4.0", "4.1", "4.2"):
        with Mounted(b, version):
            b.sh("""
mkdir /mnt/nfs/fresh; cd /mnt/nfs/fresh; echo text > a; ln a b; ln -s a c; mv b d; chmod 640 a; drop_caches
cat a c > /dev/null; ls -l > /dev/null; head -c 70000 /dev/urandom > big; drop_caches; sha256sum big > /dev/null
truncate -s 100000 big; locks fcntl big 0 try; fallocate -l 200000 big || true; cp big copy; stat -f . > /dev/null
cd /; rm -r /mnt/nfs/fresh""")
    b.lab.stop_capture(capture)
    compounds = f"{b.lab.dir}/compounds.txt"
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/captured_compounds.py")
    with open(compounds, "w", encoding="ascii") as file:
        subprocess.run([sys.executable, golden, packets, str(NFS_PORT)], stdout=file, check=True)
    lines = open(compounds, encoding="ascii").read().splitlines()
    operations = {number for line in lines for number in line.split()[1].split(",")}
    print(f"# {len(lines)} calls and replies with {len(operations)} different operations")
    done = subprocess.run([b.bindings_test, "--gtest_filter=Nfs4Compound.what_kernels_sent*"], capture_output=True, text=True, check=False,
                          env={**os.environ, "SLUICE_FRESH_COMPOUNDS": compounds})
    if done.returncode != 0 or len(lines) < 200 or len(operations) < 20:
        raise Failed(done.stdout[-3000:])


def ten_thousand_files_in_a_folder(b):
    folder = f"{b.upstream.dir}/vfs/many"
    os.mkdir(folder)
    for i in range(10000):
        with open(f"{folder}/file-with-a-rather-long-name-{i}", "w", encoding="ascii"):
            pass
    for version in ("3", "4.1"):
        with Mounted(b, version):
            b.sh("ls /mnt/nfs/many > /tmp/listed; test \"$(wc -l < /tmp/listed)\" = 10000; test \"$(sort -u /tmp/listed | wc -l)\" = 10000")
    shutil.rmtree(folder)


def fio_verifies_with_four_jobs(b):
    for version in ("3", "4.1"):
        with Mounted(b, version):
            b.sh("""
cd /tmp
fio --name=mixed --directory=/mnt/nfs --size=8m --numjobs=4 --rw=randrw --bs=4k --iodepth=8 --ioengine=libaio --direct=1 --verify=crc32c \\
  --verify_fatal=1 --number_ios=800 --output=/tmp/fio.log || { cat /tmp/fio.log; exit 1; }
rm /mnt/nfs/mixed*; cd /""")


def data_goes_over_all_connections(version):
    """Data uses the shared connections; under NFS 4 the client's dedicated connection carries the short calls. Linux uses the largest READ and
    WRITE that it is offered: the 64 MiB that the upstream announces, lowered to the gateway's limit."""
    mib, connections = 48, 4

    def test(b):
        with Mounted(b, version):
            b.sh(f"""
grep ' /mnt/nfs .*rsize={1 << 20},wsize={1 << 20},' /proc/mounts
cd /tmp
fio --name=striped --directory=/mnt/nfs --size={mib}m --rw=write --bs=1m --iodepth=8 --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 \
  --output=/tmp/fio.log || {{ cat /tmp/fio.log; exit 1; }}
rm /mnt/nfs/striped*; cd /""")
            done = dict(re.findall(r"(READ|WRITE): (\d+)", b.sh("grep -E '^\\s+(READ|WRITE): ' /proc/self/mountstats")))
            sockets = run(*b.lab.netns("ss", "-Htin", "state", "established", f"( dport = :{NFS_PORT} )"))
        if done != {"READ": str(mib), "WRITE": str(mib)}:
            raise Failed(f"{mib} MiB by {done}")
        for way in ("bytes_sent", "bytes_received"):
            amounts = [int(amount) >> 20 for amount in re.findall(way + r":(\d+)", sockets)]
            print(f"# {way} of each connection, in MiB: {amounts}")
            if sum(amount >= mib // connections // 2 for amount in amounts) != connections:
                raise Failed(f"{way}: {amounts} MiB")
        if b.counters()["unassociated"]:
            raise Failed(f"the upstream refuses sessions on other connections: {b.counters()}")
    test.__name__ = f"data_goes_over_all_connections_under_version_{version.replace('.', '_')}"
    return test


def upstream_is_killed(version):
    def test(b):
        b.across(Mounted(b, version), b.restart_upstream)
    test.__name__ = f"upstream_is_killed_under_version_{version.replace('.', '_')}"
    return test


def idle_connections_that_end_come_back_with_the_next_call(b):
    """Servers close idle connections after some minutes; here the kernel closes them immediately."""
    for version in ("3", "4.1"):
        with Mounted(b, version):
            b.sh("echo before > /mnt/nfs/idle")
            before = b.counters()
            run(*b.lab.netns("ss", "-K", "-t", "state", "established", f"( sport = :{NFS_PORT} )"))
            b.lab.wait("the gateway sees it", lambda old=before: b.counters()["disconnects"] > old["disconnects"])
            b.sh('drop_caches; test "$(cat /mnt/nfs/idle)" = before; rm /mnt/nfs/idle')
            after = b.counters()
            if after["connects"] == before["connects"] or after["timeouts"] != before["timeouts"]:
                raise Failed(f"before: {before}; after: {after}")


MAKERS = 8
MAKE_AND_REMOVE = f"""
folders=$(seq {MAKERS} | sed s,^,/mnt/nfs/,); running=
mkdir $folders
for folder in $folders; do
  until stop_requested; do mkdir $folder/once; rmdir $folder/once; done & running="$running $!"
done
for one in $running; do wait $one; done
rmdir $folders"""


def what_is_repeated_is_done_once(version):
    """A client creates and removes names over connections that end while the upstream executes its calls. A CREATE or REMOVE that is executed
    twice fails. Most calls that are outstanding when the upstream stops are lookups, but with this many makers some are not."""
    def test(b):
        before = b.counters()
        with Mounted(b, version), b.while_it_runs(MAKE_AND_REMOVE):
            for rounds in range(30):
                replayed = b.counters()["replayed"] - before["replayed"]
                if rounds > 3 and replayed > 0:
                    break
                b.sends("roce", 100)
                abandoned = b.counters()["abandoned"]
                os.killpg(b.upstream.process.pid, signal.SIGSTOP)
                try:
                    b.lab.wait("calls of most makers to be at the upstream", lambda: b.upstreams()["outstanding"] > MAKERS // 2)
                    for connection in b.connections():
                        run(*b.ctl("connections", "close", str(connection["reactor"]), str(connection["connection"])))
                    b.lab.wait("the gateway to see them end", lambda old=abandoned: b.counters()["abandoned"] > old)
                finally:
                    os.killpg(b.upstream.process.pid, signal.SIGCONT)
                b.lab.wait("the client to come back", b.connections)
            b.sends("roce", 100)
        after = b.counters()
        print(f"# {after['replayed'] - before['replayed']} of {after['abandoned'] - before['abandoned']} calls were replayed in {rounds} rounds")
        if after["replayed"] == before["replayed"]:
            raise Failed(f"nothing was repeated: {after}")
    test.__name__ = f"what_is_repeated_is_done_once_over_version_{version.replace('.', '_')}"
    return test


def control_plane_is_killed(b):
    def restart():
        b.lab.kill(b.planes.control)
        b.sends("roce")
        b.planes.start_control()
        b.lab.wait("the new control plane is up", b.planes.up)
    b.across(Mounted(b, "4.1"), restart)


def data_plane_is_killed(b):
    """No state is lost with the gateway, because all state of clients is at the upstream."""
    def restart():
        b.lab.kill(b.planes.data)
        b.planes.start_data()
    b.across(Mounted(b, "4.1"), restart)


def use_addresses(b, *addresses):
    """Reloads with these addresses. Connections then use the first of them."""
    with open(b.planes.config, encoding="utf-8") as file:
        text = file.read()
    with open(b.planes.config, "w", encoding="utf-8") as file:
        file.write(re.sub(r"(?m)^address = .*$", f"address = {json.dumps(addresses)}", text, count=1))
    run(*b.ctl("config", "reload"))


def in_use(b):
    return [entry["address"] for entry in b.upstreams()["addresses"] if entry["in_use"]]


def an_upstream_moves_from_address_to_address(version):
    """One of two addresses disappears and returns, and then both are replaced by a name, while a file is read and written."""
    first, second = "10.99.0.1", "10.99.0.2"

    def test(b):
        for address in (first, second):
            b.lab.ip("addr", "add", f"{address}/32", "dev", "lo")
        with Mounted(b, version), b.under_random_io("/mnt/nfs/moving", 991):
            use_addresses(b, first, second)
            b.lab.wait("the first address to be used", lambda: in_use(b) == [first])
            b.sends("roce")
            b.lab.ip("addr", "del", f"{first}/32", "dev", "lo")
            b.lab.wait("the second address to be used", lambda: in_use(b) == [second])
            b.sends("roce")
            b.lab.ip("addr", "add", f"{first}/32", "dev", "lo")
            b.lab.wait("the first address to be used again", lambda: in_use(b) == [first])
            b.sends("roce")
            resent = b.counters()["resent"]
            use_addresses(b, "localhost")
            b.lab.wait("the name to be used", lambda: in_use(b) in (["127.0.0.1"], ["::1"]))
            b.sends("roce")
            if b.counters()["resent"] != resent:
                raise Failed(f"calls were sent twice for a move: {b.counters()}")
        use_addresses(b, "127.0.0.1")
        for address in (first, second):
            b.lab.ip("addr", "del", f"{address}/32", "dev", "lo")
    test.__name__ = f"an_upstream_moves_from_address_to_address_under_version_{version.replace('.', '_')}"
    return test


TESTS = [exports_of_the_upstream_are_listed, tree("3"), tree("4.0"), tree("4.1"), tree("4.2"), files_of_the_upstreams_own_memory,
         locks_between_two_mounts,
         open_files_are_renamed_and_removed, sparse_files_and_copies, compounds_are_stepped_over_as_wireshark_does,
         ten_thousand_files_in_a_folder, fio_verifies_with_four_jobs, data_goes_over_all_connections("3"), data_goes_over_all_connections("4.1"), upstream_is_killed("3"), upstream_is_killed("4.0"),
         upstream_is_killed("4.1"), control_plane_is_killed, data_plane_is_killed,
         an_upstream_moves_from_address_to_address("3"), an_upstream_moves_from_address_to_address("4.1"),
         idle_connections_that_end_come_back_with_the_next_call,
         what_is_repeated_is_done_once("3"), what_is_repeated_is_done_once("4.0"), a_delegation_of_linux_is_recalled_in_the_reverse_direction, access_control_lists]


def main():
    programs, names = sys.argv[1:5], sys.argv[5:]
    tests = [test for test in TESTS if not names or test.__name__ in names]
    need_lab("ganesha.nfsd")
    bench = GatewayBench(*programs)
    return 1 if run_tests(bench, tests) else 0


if __name__ == "__main__":
    sys.exit(main())
