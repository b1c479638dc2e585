#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests how servers of other projects are started, checked and stopped, with a program in the place of chimera. peers_test.py"""
import contextlib
import io
import json
import math
import os
import shutil
import stat
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import chimera  # noqa: E402
import peer  # noqa: E402
import processor_time  # noqa: E402
import run  # noqa: E402

# Listens where its configuration says, and on the port of MOUNT a second later.
STUB = f"""#!{sys.executable}
import json, os, socket, sys, time
assert sys.argv[1] == "-c"
config = json.load(open(sys.argv[2]))
assert config["exports"] == {{"/mem": {{"path": "/mem"}}}} and config["mounts"]["mem"]["module"] == "memfs"
nfs, mount = socket.socket(), socket.socket()
nfs.bind(("0.0.0.0", config["server"]["nfs_port"]))
nfs.listen()
time.sleep(1)
with open(os.path.join(config["server"]["state_dir"], "cpus"), "w") as file:
    file.write(repr(os.sched_getaffinity(0)))
mount.bind(("0.0.0.0", 20048))
mount.listen()
time.sleep(1000)
"""


class Programs(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)

    def program(self, text, mode=0o755):
        path = os.path.join(self.dir, "it's chimera")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return mock.patch.dict(os.environ, {chimera.VARIABLE: path})


class Lacks(Programs):
    def test_without_a_path_the_reason_names_the_variable(self):
        with mock.patch.dict(os.environ):
            os.environ.pop(chimera.VARIABLE, None)
            self.assertEqual(chimera.lacks(), "SLUICE_CHIMERA does not name chimera's daemon, which is in no package.")

    def test_a_path_that_is_not_a_program_is_a_reason(self):
        with self.program(STUB, stat.S_IRUSR):
            with mock.patch("os.access", lambda path, mode: bool(os.stat(path).st_mode & stat.S_IXUSR)):  # root may execute anything
                self.assertIn("is not a program", chimera.lacks())
        with mock.patch.dict(os.environ, {chimera.VARIABLE: self.dir}):
            self.assertIn("is not a program", chimera.lacks())

    def test_every_figure_of_chimera_is_skipped_with_a_sentence(self):
        names = [name for name in processor_time.FIGURES if name.startswith("memif_vs_chimera_")]
        self.assertEqual(len(names), 6)
        with mock.patch.dict(os.environ):
            os.environ.pop(chimera.VARIABLE, None)
            for name in names:
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    processor_time.FIGURES[name]("no build")
                self.assertEqual(json.loads(out.getvalue()), {"figure": name, "skipped": chimera.lacks()})


class Names(unittest.TestCase):
    def test_one_name_stands_for_all_figures_of_peers(self):
        self.assertEqual(run.named(["peers"], ["cpu_null_vs_ganesha", "other"]), list(processor_time.FIGURES))
        self.assertEqual(run.named(["other", "peers"], ["other"])[0], "other")

    def test_unknown_names_end_the_program(self):
        with self.assertRaises(SystemExit):
            run.named(["nothing"], ["other"])


@unittest.skipIf(peer.lacks(), peer.lacks())
class Servers(Programs):
    def test_a_server_is_there_once_it_listens_on_both_ports(self):
        with self.program(STUB), chimera.Chimera(0) as server:
            self.assertTrue(server.listens())
            with open(f"{server.dir}/cpus", encoding="utf-8") as file:
                self.assertEqual(file.read(), "{0}")
            pid, folder = server.process.pid, server.dir
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        self.assertFalse(os.path.exists(folder))

    def test_its_ports_are_in_a_namespace_of_their_own(self):
        with self.program(STUB), chimera.Chimera(0) as server, open("/proc/net/tcp", encoding="utf-8") as file:
            self.assertNotEqual(os.stat("/proc/self/ns/net").st_ino, os.stat(f"/proc/{server.process.pid}/ns/net").st_ino)
            self.assertNotIn(f":{server.MOUNT_PORT:04X} 00000000:0000 0A", file.read())

    def test_a_server_that_ends_is_noticed_and_its_output_is_kept(self):
        with self.program("#!/bin/sh\necho no such option\nexit 1\n"), mock.patch.object(peer, "PATIENCE_S", math.inf):
            server = chimera.Chimera(0)
            self.addCleanup(shutil.rmtree, server.dir)
            with self.assertRaisesRegex(AssertionError, "chimera does not start"):
                server.__enter__()  # pylint: disable=unnecessary-dunder-call
            with open(f"{server.dir}/out", encoding="utf-8") as file:
                self.assertIn("no such option", file.read())

    def test_a_server_that_never_listens_is_stopped(self):
        with self.program("#!/bin/sh\nexec sleep 1000\n"), mock.patch.object(peer, "PATIENCE_S", 0.5):
            server = chimera.Chimera(0)
            self.addCleanup(shutil.rmtree, server.dir)
            with self.assertRaises(AssertionError):
                server.__enter__()  # pylint: disable=unnecessary-dunder-call
        self.assertFalse(os.path.exists(f"/proc/{server.process.pid}"))


if __name__ == "__main__":
    unittest.main()
