#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice-conformance judges Sluice over softroce, and reports deviations. Speaks TAP.

remote_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH SLUICE_CONFORMANCE"""
import contextlib
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import planes_of_tests  # noqa: E402
from planes_of_tests import Failed, free_port, memif_ethdev, run_tap  # noqa: E402

CONTROL, DATA, CTL, BENCH, CONFORMANCE = sys.argv[1:6]
LONGEST_S = 600


class Planes(planes_of_tests.Planes):
    def __init__(self, transport=""):
        super().__init__("conformance", CONTROL, DATA, CTL, BENCH)
        self.port = free_port()
        self.write_config(f"""segment = "{self.name}"
[reactor]
idle = "backoff"
[transport]
max_connections = 16
{transport}
[device]
driver = "softroce"
ethdev = "{memif_ethdev(self.dir, "server")}"
addresses = ["192.0.2.1/24"]
[memory]
size_mib = 128
[admission]
max_requests_per_second = 10000
max_requests_per_second_per_client = 10000
[policy]
max_connections_per_client = 16
[admin]
socket = "{self.socket}"
[metrics]
address = "127.0.0.1:{free_port()}"
[mount]
port = {self.port}
rpcbind = false
[[export]]
path = "/export"
clients = []
root_squash = false
""")

    def judged(self, *words):
        """Returns the exit status, and the result if there is one."""
        done = subprocess.run([CONFORMANCE, "--device", "softroce", "--ethdev", memif_ethdev(self.dir, "client"), "--address", "192.0.2.2/24",
                               "--server", "192.0.2.1", "--mount-host", "127.0.0.1", "--mount-port", str(self.port), "--json", *words],
                              capture_output=True, text=True, timeout=LONGEST_S, check=False)
        if done.returncode not in (0, 1):
            return done.returncode, done.stderr
        return done.returncode, json.loads(done.stdout)


@contextlib.contextmanager
def planes(transport=""):
    there = Planes(transport)
    try:
        there.start()
        yield there
    except Exception as error:
        raise Failed(f"{error}\n{there.text_of_log()[-3000:]}") from error
    finally:
        there.stop()


def unless_passed(result):
    return json.dumps([test for test in result["tests"] if test["outcome"] != "passed"], indent=1)


def sluice_meets_every_row(version):
    def test():
        with planes() as there:
            status, result = there.judged("--strict", "--destructive", "--rpcrdma", str(version))
            if status != 0 or result["passed"] != len(result["tests"]) or not result["tests"]:
                raise Failed(unless_passed(result) if status in (0, 1) else str(result))
            print(f"# version {version}: {result['passed']} tests of {result['rows']} rows")
            left = there.ctl("exports")
            if not left:
                raise Failed("the control plane does not answer any more")
    return test


def a_deviation_is_found():
    """reply_chunks = "if-needed" violates a decision of Sluice, but not RFC 8166."""
    with planes('reply_chunks = "if-needed"') as there:
        for words, wanted in ((["--strict"], (1, "failed")), ([], (0, "unmet"))):
            status, result = there.judged("--row", "V1-120", *words)
            test, = result["tests"]
            if (status, test["outcome"]) != wanted or "RDMA_NOMSG" not in test["detail"] or len(test["seen"]) < 3:
                raise Failed(f"exit status {status}: {json.dumps(result, indent=1)}")
        status, result = there.judged("--strict", "--row", "V1-124")
        if status != 0:
            raise Failed(unless_passed(result))


def what_the_server_lacks_is_skipped():
    with planes("max_version = 1") as there:
        status, result = there.judged("--rpcrdma", "2")
        if status != 0 or result["skipped"] != len(result["tests"]) or "version 2" not in result["tests"][0]["detail"]:
            raise Failed(f"exit status {status}: {unless_passed(result)}")
        status, sentence = there.judged("--port", "20050")
        if status != 3 or "refused the connection on port 20050" not in sentence:
            raise Failed(f"exit status {status}: {sentence}")
        status, sentence = there.judged("--row", "nothing")
        if status != 2 or "--list" not in sentence:
            raise Failed(f"exit status {status}: {sentence}")


def clients_are_judged(version, least):
    """Uses only NULL calls. Files are covered by the tests of the kernel's client and of our requester."""
    with tempfile.TemporaryDirectory(prefix="sluice-judge-") as folder:
        judge = [CONFORMANCE, "--device", "softroce", "--ethdev", memif_ethdev(folder, "server"), "--listen", "192.0.2.1/24", "--rpcrdma", str(version)]
        done = subprocess.run([*judge, "--upstream", "nowhere"], capture_output=True, text=True, timeout=LONGEST_S, check=False)
        if done.returncode != 3 or "--upstream has to be" not in done.stderr:
            raise Failed(f"exit status {done.returncode}: {done.stderr}")
        with subprocess.Popen([*judge, "--first-calls", "100", "--patience", "0.2", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                while (line := process.stderr.readline()) and "Listening" not in line:
                    pass
                subprocess.run([BENCH, "--device", "softroce", "--ethdev", memif_ethdev(folder, "client"), "--address", "192.0.2.2/24", "--server", "192.0.2.1",
                                "--rpcrdma", str(version), "--operations", "500", "--seconds", "60", "null"], capture_output=True, timeout=LONGEST_S, check=True)
                while (line := process.stderr.readline()) and "All has been tried" not in line:
                    pass
                process.terminate()
                result = json.loads(process.communicate(timeout=LONGEST_S)[0])
            finally:
                process.kill()
        if process.returncode != 0 or result["failed"] or result["unmet"] or result["passed"] < least:
            raise Failed(f"exit status {process.returncode}: {unless_passed(result)}")
        print(f"# version {version}: {result['passed']} rules were kept, {result['skipped']} were not seen")


def results_that_cannot_be_written_are_an_error():
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([CONFORMANCE, "--list"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=LONGEST_S, check=False)
    if done.returncode != 3 or "could not be written" not in done.stderr:
        raise Failed(f"exit status {done.returncode}: {done.stderr}")


if __name__ == "__main__":
    sys.exit(run_tap([("sluice_meets_every_row_of_version_1", sluice_meets_every_row(1)),
                      ("sluice_meets_every_row_of_version_2", sluice_meets_every_row(2)),
                      ("a_deviation_is_found", a_deviation_is_found),
                      ("what_the_server_lacks_is_skipped", what_the_server_lacks_is_skipped),
                      ("clients_of_version_1_are_judged", lambda: clients_are_judged(1, 14)),
                      ("clients_of_version_2_are_judged", lambda: clients_are_judged(2, 12)),
                      ("results_that_cannot_be_written_are_an_error", results_that_cannot_be_written_are_an_error)]))
