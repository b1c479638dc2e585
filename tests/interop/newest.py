# SPDX-License-Identifier: Apache-2.0
"""nfs-ganesha and user-space NFS clients of Debian's sid in a separate root folder, because their libraries are newer than this
machine's. SLUICE_UPSTREAM=newest makes that nfs-ganesha the upstream of the tests."""
import functools
import os
import re
import tempfile

from lab import made_by

# The root folder sees the same files at the same paths. A shell that runs this has a separate mount namespace.
BINDS = """
for folder in /proc /dev /run {temporary}; do mkdir -p {root}$folder; mount --rbind $folder {root}$folder; done
"""


def is_upstream():
    return os.environ.get("SLUICE_UPSTREAM") == "newest"


@functools.cache
def root():
    return made_by("newest_root.sh", "The packages of sid")


def binds():
    return BINDS.format(root=root(), temporary=tempfile.gettempdir())


def client(*words):
    """Returns the command that runs a client of the root folder."""
    return ("unshare", "-m", "sh", "-ec", f'{binds()}exec chroot {root()} "$@"', "sh", *words)


def ganesha(folder, sid):
    """Returns the shell command that starts nfs-ganesha, of sid or of this machine, with `folder`/ganesha.conf."""
    how = f"{binds()}exec chroot {root()}" if sid else "exec"
    return f"{how} ganesha.nfsd -F -f {folder}/ganesha.conf -L {folder}/log -p {folder}/pid"


def core(sid):
    """Returns parameters for NFS_CORE_PARAM. Newer releases end if they may not set PR_SET_IO_FLUSHER, as in a container."""
    return "Allow_Set_Io_Flusher_Fail = true;" if sid else ""


def version(folder):
    """Returns the version of the nfs-ganesha that has been started with `folder`."""
    with open(f"{folder}/log", encoding="utf-8", errors="replace") as log:
        return re.search(r"Ganesha Version (\S+)", log.read())[1]
