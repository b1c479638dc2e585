#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice-conformance judges the Linux kernel's client, and the page that documents its deviations is correct. Speaks TAP.

client_test.py SLUICE_CONFORMANCE PAGE [--write]      (--write: regenerates the page)"""
import json
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from judged import JudgedKernel, deviations, need_the_kernel_of_the_page, page_of, read_result, rows_of  # noqa: E402
from lab import ETHDEV, PLAIN_GUEST, ROCE_HOST, Failed, need_lab, run_tests  # noqa: E402

CONFORMANCE, PAGE = sys.argv[1:3]
PATIENCE_S, LONGEST_S = 20, 600
ATTEMPTS = 3  # an emulated kernel on a busy machine may end a connection without a reason
OPTIONS = f"proto=rdma,port=20049 {ROCE_HOST}:"
MOUNT3 = f"mount -t nfs -o vers=3,nolock,mountproto=tcp,mountport=20048,mountaddr={PLAIN_GUEST},{OPTIONS}/export /mnt/nfs"
MOUNT4 = f"mount -t nfs -o vers=4.1,{OPTIONS}/ /mnt/nfs"
# Depending on timing, Linux repeats a call after an error or a truncated reply, or does not. After an RDMA_NOMSG without a Reply chunk it reads
# a buffer that was not written: it accepts the contents of an earlier reply, or repeats the call.
AT_TIMES = {"V1_027_V1_028_ERR_CHUNK_ends_the_call", "V1_029_ERR_VERS_ends_the_call", "V1_036_a_reply_ends_within_its_header",
            "V1_122_V1_036_an_RDMA_NOMSG_comes_without_a_Reply_chunk_in_the_call"}
# The client's work with files. A provocation may fail an operation, but data has to equal what was written.
WORK = """
work() {
  dd if=/dev/urandom of=/tmp/file bs=1001 count=3001 2> /dev/null
  if cp /tmp/file /mnt/nfs/file; then
    drop_caches
    cat /mnt/nfs/file > /tmp/copy && ! cmp /tmp/file /tmp/copy > /tmp/differs && cat /tmp/differs && touch /tmp/wrong
  fi
  dd if=/tmp/file of=/mnt/nfs/direct bs=5001 count=3 oflag=direct 2> /dev/null
  dd if=/mnt/nfs/direct of=/dev/null bs=5001 iflag=direct 2> /dev/null
  entries=$(for user in $(seq 1000 1400); do printf u:%s:r, "$user"; done)
  rm -f /mnt/nfs/acl; : > /mnt/nfs/acl
  setfacl -m "${entries%,}" /mnt/nfs/acl
  name=$(printf '%0200d' 7)
  mkdir -p /mnt/nfs/$name
  ln -sf "$(printf '/%0250d' 1 2 3 4)" /mnt/nfs/$name/link
  readlink /mnt/nfs/$name/link > /dev/null
  for i in $(seq 100); do : > /mnt/nfs/$name/$i-$name; done
  drop_caches
  ls -l /mnt/nfs/$name > /dev/null
  rm -rf /mnt/nfs/$name
} 2> /dev/null
"""
INTRODUCTION = """# The Linux kernel's client, judged

What `sluice-conformance --listen` finds at the NFS client of a Linux kernel, `{kernel}`, over its Soft RoCE. It mounts by NFS version 4.1 and is only
observed, then by version 3 and is provoked.

| tests passed | tests of a MUST that failed | a SHOULD or a decision not met |
|---|---|---|
| {passed} | {failed} | {unmet} |

`tests/interop/client_test.py SLUICE_CONFORMANCE PAGE --write` makes this page. The suite `interop` fails when the client behaves differently. Excepted is
whether it repeats a call after an error (V1-027, V1-029), a truncated reply (V1-036) or an RDMA_NOMSG without Reply chunk (V1-122), which depends on
timing. [Judging another implementation](conformance.md) describes the tests.
{not_seen}"""


class JudgedClient(JudgedKernel):
    """Linux's client over rxe in the guest. The guest's NFS server, over TCP, is the upstream of the judge, which is the only part of Sluice."""

    def set_up(self):
        super().set_up()
        self.runs, self.judges = [], 0

    def judged(self, mount, *words, until):
        """Returns the judge's result for a client that mounts, and works until the judge's log contains `until`, at least once."""
        self.judges += 1
        log = f"{self.lab.dir}/judge{self.judges}"
        text = lambda: open(log, encoding="utf-8").read()  # noqa: E731
        judge = self.lab.start(CONFORMANCE, "--device", "softroce", "--ethdev", ETHDEV, "--listen", f"{ROCE_HOST}/24", "--upstream", f"{PLAIN_GUEST}:2049",
                               "--patience", str(PATIENCE_S), "--json", *words, log=log)
        self.lab.wait("the judge to listen", lambda: "Listening" in text())
        with self.while_it_runs(f"{WORK}{mount}\nset +e\nwork; until stop_requested; do work; done\numount /mnt/nfs; [ ! -e /tmp/wrong ]"):
            self.lab.wait("the judge to have tried all", lambda: until in text() or judge.poll() is not None, LONGEST_S)
        os.killpg(judge.pid, signal.SIGINT)
        judge.wait(60)
        if judge.returncode not in (0, 1):
            raise Failed(f"exit status {judge.returncode}: {text()[-2000:]}")
        return read_result(text())


def version_4_1_calls_back(bench):
    # Version 3 starts the lock manager, whose grace period cannot be ended.
    bench.sh("rpc.nfsd 0; rpc.nfsd -N 3 --tcp 4; end_grace")
    result = bench.judged(MOUNT4, "--calm", until="Listening")
    bench.runs.append(result)
    if not any("V1-166" in test["rows"] and test["outcome"] != "skipped" for test in result["tests"]):
        raise Failed("no reply in the reverse direction was seen")


def version_3_is_provoked(bench):
    bench.sh("rpc.nfsd 0; rpc.nfsd -N 4 -V 3 --tcp 4")
    result = bench.judged(MOUNT3, until="All has been tried")
    bench.runs.append(result)
    if result["passed"] < 45:
        raise Failed(str({test["name"]: test["detail"] for test in result["tests"] if test["outcome"] != "passed"}))


def merged(runs):
    """Returns the worst outcome of each test."""
    order = ["failed", "unmet", "passed", "skipped"]
    tests = {}
    for run in runs:
        for test in run["tests"]:
            other = tests.setdefault(test["name"], test)
            if order.index(test["outcome"]) < order.index(other["outcome"]):
                tests[test["name"]] = test
    result = {"tests": list(tests.values())}
    for outcome in order:
        result[outcome] = sum(test["outcome"] == outcome for test in result["tests"])
    return result


def the_page_says_what_linux_does_otherwise(bench):
    need_the_kernel_of_the_page()
    result = merged(bench.runs)
    if "--write" in sys.argv:
        not_seen = "".join(f"- `{test['name']}`: {test['detail']}\n" for test in result["tests"] if test["outcome"] == "skipped")
        introduction = INTRODUCTION.format(kernel=bench.sh("uname -rv").strip(), not_seen=f"\nNot judged:\n\n{not_seen}" if not_seen else "", **result)
        with open(PAGE, "w", encoding="utf-8") as page:
            page.write(page_of(result, introduction))
    documented = set(rows_of(PAGE)) - AT_TIMES
    if unknown := documented - {test["name"] for test in result["tests"]}:
        raise Failed(f"the page has tests that there are not: {unknown}")
    odd = documented ^ (set(deviations(result)) - AT_TIMES)
    for _ in range(1, ATTEMPTS):
        if not odd:
            break
        result = bench.judged(MOUNT3, *(word for name in sorted(odd) for word in ("--row", name)), until="All has been tried")
        odd = (documented ^ set(deviations(result))) & odd
    if odd:
        raise Failed(json.dumps({"the page": sorted(odd & documented), "the client": [test for test in result["tests"] if test["name"] in odd]}, indent=1))


if __name__ == "__main__":
    need_lab()
    TESTS = [version_4_1_calls_back, version_3_is_provoked, the_page_says_what_linux_does_otherwise]
    sys.exit(run_tests(JudgedClient(), TESTS) != 0)
