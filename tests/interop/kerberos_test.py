#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RPCSEC_GSS through the gateway: a Linux client, nfs-ganesha and a KDC, which share keys that the gateway does not have. Speaks TAP.

kerberos_test.py CONTROLPLANE DATAPLANE SLUICECTL [NAME...]   (NAME: only those tests)"""
import os
import shutil
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gateway_bench import TREE, GatewayBench, Mounted, Upstream  # noqa: E402
from kdc import Kdc  # noqa: E402
from lab import PLAIN_HOST, ROCE_HOST, Failed, need_lab, run_tests  # noqa: E402

# To its clients the gateway is the server, so the upstream has the keys for the gateway's name.
GATEWAY = "gateway.sluice.test"
CLIENT = "guest.sluice.test"
ROCE_PORT = 4791
UPSTREAM_PORT = 12049  # the gateway uses 2049
FLAVOURS = ("krb5", "krb5i", "krb5p")
# nfs-ganesha maps these principals to root.
CLIENT_PRINCIPAL = f"nfs/{CLIENT}"


class KerberosBench(GatewayBench):
    def __init__(self, *programs):
        super().__init__(*programs, None)

    def new_upstream(self):
        self.kdc = Kdc(self.lab, PLAIN_HOST)
        self.kdc.start()
        keytab = self.kdc.keytab(f"nfs/{GATEWAY}")
        more = f"NFS_KRB5 {{ PrincipalName = nfs; KeytabPath = {keytab}; CCacheDir = {self.kdc.dir}; Active_krb5 = true; }}"
        return Upstream(self.lab, port=UPSTREAM_PORT, security=", ".join(FLAVOURS), more=more, environment=self.kdc.environment)

    def configuration(self):
        return super().configuration() + "[kerberos]\nenabled = true\n"

    def share_address(self):
        """Assigns the gateway's address to the kernel too, for TCP. A socket binds the RoCE port, because the kernel would otherwise answer RoCE
        packets with port-unreachable."""
        self.lab.ip("addr", "add", f"{ROCE_HOST}/24", "dev", "roce")
        with self.lab.inside():
            self.roce_port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.roce_port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self.roce_port.bind((ROCE_HOST, ROCE_PORT))

    def set_up(self):
        super().set_up()
        self.share_address()
        shutil.copy(self.kdc.krb5_conf, f"{self.guest.dir}/krb5.conf")
        shutil.copy(self.kdc.keytab(CLIENT_PRINCIPAL), f"{self.guest.dir}/krb5.keytab")
        self.sh(f"""
hostname {CLIENT}; echo '{ROCE_HOST} {GATEWAY}' >> /etc/hosts; echo '127.0.0.1 {CLIENT}' >> /etc/hosts
cp /mnt/host/krb5.conf /mnt/host/krb5.keytab /etc/
modprobe -a rpcsec_gss_krb5 cts; mount -t rpc_pipefs none /var/lib/nfs/rpc_pipefs
rpc.gssd
# The kernel refuses a mount with Kerberos as long as nobody reads the pipe of gssd, which opens it after it has become a daemon.
for tenth in $(seq 300); do ls -l /proc/$(pidof rpc.gssd)/fd | grep -q 'rpc_pipefs/gssd/.*/gssd$' && break; sleep 0.1; done
ls -l /proc/$(pidof rpc.gssd)/fd | grep -q 'rpc_pipefs/gssd/.*/gssd$'""")

    def mounted(self, version, flavour):
        return Mounted(self, version, server=GATEWAY, more=f",sec={flavour}")


def tree(version, flavour):
    def test(b):
        with b.mounted(version, flavour):
            b.sh(f"grep -q sec={flavour} /proc/mounts\n{TREE}")
    test.__name__ = f"files_and_folders_with_{flavour}_over_version_{version.replace('.', '_')}"
    return test


def who_has_no_ticket_is_refused(b):
    """The upstream authenticates the caller: a user ID alone gives no access."""
    with b.mounted("4.1", "krb5"):
        b.sh("""
echo mine > /mnt/nfs/ticket; chmod 666 /mnt/nfs/ticket; cat /mnt/nfs/ticket
status=0; setpriv --reuid 65534 --clear-groups cat /mnt/nfs/ticket || status=$?; test $status != 0; rm /mnt/nfs/ticket""")


def upstream_is_killed(version, flavour):
    """The upstream loses its contexts, so the client creates new ones and encodes its calls again."""
    def test(b):
        before = b.counters()
        b.across(b.mounted(version, flavour), b.restart_upstream)
        after = b.counters()
        if after["disconnects"] == before["disconnects"]:
            raise Failed(f"the upstream was never lost: {after}")
    test.__name__ = f"upstream_is_killed_with_{flavour}_over_version_{version.replace('.', '_')}"
    return test


# Version 4.0 is not tested, because nfs-ganesha 4.3 exits when it has no ticket for a callback to the client.
TESTS = [*(tree(version, flavour) for version in ("3", "4.1") for flavour in FLAVOURS), who_has_no_ticket_is_refused,
         *(upstream_is_killed(version, flavour) for version in ("3", "4.1") for flavour in FLAVOURS)]


def main():
    programs, names = sys.argv[1:4], sys.argv[4:]
    tests = [test for test in TESTS if not names or test.__name__ in names]
    need_lab("ganesha.nfsd", "krb5kdc", "kadmin.local")
    bench = KerberosBench(*programs)
    return 1 if run_tests(bench, tests) else 0


if __name__ == "__main__":
    sys.exit(main())
