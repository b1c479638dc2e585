# SPDX-License-Identifier: Apache-2.0
"""A Kerberos realm for a lab: MIT's KDC in the lab's namespace, with the principals and keys of its machines."""
import os
import subprocess

REALM = "SLUICE.TEST"
# Encryption types that both Linux 6.1 and MIT Kerberos support.
KRB5_CONF = """
[libdefaults]
default_realm = {realm}
dns_lookup_realm = false
dns_lookup_kdc = false
dns_canonicalize_hostname = false
rdns = false
permitted_enctypes = aes256-cts-hmac-sha1-96
default_ccache_name = FILE:/tmp/krb5cc_%{{uid}}
[realms]
{realm} = {{
kdc = {address}
}}
"""
KDC_CONF = """
[kdcdefaults]
kdc_listen = {address}
kdc_tcp_listen = {address}
[realms]
{realm} = {{
database_name = {dir}/principal
key_stash_file = {dir}/stash
acl_file = {dir}/acl
supported_enctypes = aes256-cts-hmac-sha1-96:normal
}}
[logging]
kdc = FILE:{dir}/log
"""


class Kdc:
    def __init__(self, lab, address):
        self.lab = lab
        self.dir = f"{lab.dir}/kdc"
        os.mkdir(self.dir)
        self.krb5_conf = f"{self.dir}/krb5.conf"
        for path, text in ((self.krb5_conf, KRB5_CONF), (f"{self.dir}/kdc.conf", KDC_CONF)):
            with open(path, "w", encoding="ascii") as file:
                file.write(text.format(realm=REALM, address=address, dir=self.dir))
        self.environment = (f"KRB5_CONFIG={self.krb5_conf}", f"KRB5_KDC_PROFILE={self.dir}/kdc.conf")
        self.run("kdb5_util", "-r", REALM, "create", "-s", "-P", "lab")

    def run(self, *command):
        subprocess.run(["env", *self.environment, *command], check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def start(self):
        process = self.lab.start("env", *self.environment, "krb5kdc", "-n", "-r", REALM, log=f"{self.dir}/out")
        self.lab.wait("the KDC listens", lambda: self.listens(process))

    def listens(self, process):
        if process.poll() is not None:
            raise RuntimeError(open(f"{self.dir}/out", encoding="utf-8").read())
        return os.path.exists(f"{self.dir}/log") and "commencing operation" in open(f"{self.dir}/log", encoding="utf-8").read()

    def keytab(self, principal):
        """Returns the path of a new keytab with a new principal's keys."""
        path = f"{self.dir}/{principal.replace('/', '_')}.keytab"
        self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return path
