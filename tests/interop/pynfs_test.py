#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The suites of pynfs against nfs-ganesha, directly and through both gateways (TCP, RPC-over-RDMA, TCP): a test that passes directly
passes through the gateways too, except for the codes in MAY_DIFFER. Speaks TAP.

pynfs_test.py CONTROLPLANE DATAPLANE SLUICECTL [NAME...]   (NAME: only those tests)

pynfs is not packaged: SLUICE_PYNFS is the folder of its source. The tests build a copy of it (Debian: python3-ply, python3-gssapi)."""
import json
import os
import shutil
import subprocess
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
from gateway_bench import MOUNT_PORT, NFS_PORT, UPSTREAM  # noqa: E402
from lab import Failed, need_lab, run_tests  # noqa: E402
from planes_of_tests import skip_all  # noqa: E402
from reverse_test import REVERSE_PORT, TwoSluices  # noqa: E402

# Tests of features that a gateway cannot forward unchanged: code, and the reason.
MAY_DIFFER = {}
SUITE_SECONDS = 2400
ENVIRONMENT = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}  # selects the interpreter for which the packages are installed


class PynfsBench(TwoSluices):
    def set_up(self):
        super().set_up()
        self.pynfs = f"{self.lab.dir}/pynfs"
        shutil.copytree(os.environ["SLUICE_PYNFS"], self.pynfs)
        done = subprocess.run(["python3", "setup.py", "build"], cwd=self.pynfs, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not os.path.exists(f"{self.pynfs}/nfs4.0/xdrdef/nfs4_const.py"):
            raise Failed(f"pynfs cannot be built:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")

    def results(self, way, minor, codes):
        """Returns the outcome of each test of a suite by its code: `passed`, or the message with which it failed. Omitted tests are left out."""
        port, folder = {"direct": NFS_PORT, "gateways": REVERSE_PORT}[way], f"/vfs/{way}4{minor}"
        on_host = f"{self.upstream.dir}{folder}"
        os.makedirs(on_host, exist_ok=True)
        os.chmod(on_host, 0o777)
        out = f"{self.lab.dir}/{way}4{minor}.json"
        with open(f"{out}.log", "w", encoding="utf-8") as log:
            subprocess.run(self.lab.netns("./testserver.py", f"127.0.0.1:{port}{folder}", "--maketree", "--rundeps", f"--json={out}", *codes),
                           cwd=f"{self.pynfs}/nfs4.{minor}", env=ENVIRONMENT, stdout=log, stderr=log, timeout=SUITE_SECONDS, check=False)
        if not os.path.exists(out):
            raise Failed(open(f"{out}.log", encoding="utf-8", errors="replace").read()[-2000:])
        with open(out, encoding="utf-8") as file:
            cases = json.load(file)["testcase"]
        os.unlink(out)
        return {case["code"]: case["failure"]["message"] if "failure" in case else "passed" for case in cases if "skipped" not in case}

    def both_ways(self, minor, codes):
        """Runs both ways in sequence, because they would replace each other's clients, whose names come from the host's name."""
        return [self.results(way, minor, codes) for way in ("direct", "gateways")]


def differences(direct, through):
    return {code: through.get(code, "not run") for code, outcome in direct.items() if outcome == "passed" and through.get(code) != "passed"}


def suite(minor):
    def test(b):
        b.serve(1, UPSTREAM.format(address="127.0.0.1", nfs=NFS_PORT, mount=MOUNT_PORT))
        direct, through = b.both_ways(minor, ["all"])
        passed = sum(outcome == "passed" for outcome in direct.values())
        found = differences(direct, through)
        print(f"# NFS 4.{minor}: {passed} of {len(direct)} pass directly, {sum(o == 'passed' for o in through.values())} through both gateways", flush=True)
        if passed < len(direct) / 2:
            raise Failed(f"{passed} of {len(direct)} tests pass directly.")
        # Some tests depend on timing, so tests that differ are repeated.
        if found:
            found = differences(*b.both_ways(minor, sorted(found)))
        for code in sorted(found.keys() & MAY_DIFFER.keys()):
            print(f"# {code} differs: {MAY_DIFFER[code]}")
        if unexpected := {code: outcome for code, outcome in found.items() if code not in MAY_DIFFER}:
            raise Failed("\n".join(f"{code}: {outcome}" for code, outcome in sorted(unexpected.items())))
    test.__name__ = f"pynfs_of_version_4_{minor}_sees_the_same_server_through_both_gateways"
    return test


TESTS = [suite(1), suite(0)]

if __name__ == "__main__":
    chosen = [test for test in TESTS if len(sys.argv) < 5 or test.__name__ in sys.argv[4:]]
    if not os.path.exists(os.path.join(os.environ.get("SLUICE_PYNFS", ""), "nfs4.1/testserver.py")):
        skip_all("SLUICE_PYNFS does not name a folder with the source of pynfs.")
    need_lab("ganesha.nfsd")
    bench = PynfsBench(*sys.argv[1:4])
    sys.exit(1 if run_tests(bench, chosen) else 0)
