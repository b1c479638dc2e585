#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Linux guest mounts Sluice over RDMA and works on the mount. Replaces deploy/first-mount.sh where the host's kernel has no Soft RoCE.

first_mount.py CONTROLPLANE DATAPLANE SLUICECTL"""
import subprocess
import sys

from lab import EXPORT, PLAIN_HOST, ROCE_HOST, Bench, Planes, build_image, need_lab


class FirstMount(Bench):
    def set_up(self):
        print("\n== A guest with Debian's kernel", flush=True)
        image = build_image()
        self.lab.add_tap("roce")
        self.lab.add_tap("plain", address=f"{PLAIN_HOST}/24")
        self.planes = Planes(self.lab, *sys.argv[1:4], EXPORT)
        self.planes.start()
        self.connect_guest(image)


def main():
    need_lab()
    bench = FirstMount()
    try:
        print("\n== The mount", flush=True)
        print(bench.sh(f"""
mount -t nfs -o vers=3,proto=rdma,port=20049,nolock,mountproto=tcp,mountport=20048,mountaddr={PLAIN_HOST} {ROCE_HOST}:/export /mnt/nfs
grep /mnt/nfs /proc/mounts
dd if=/dev/urandom of=/tmp/file bs=1000 count=3000 2> /dev/null
cp /tmp/file /mnt/nfs/file; drop_caches
cmp /tmp/file /mnt/nfs/file
ls -l /mnt/nfs"""), flush=True)
        subprocess.run(bench.lab.netns(bench.planes.ctl_path, "--socket", bench.planes.socket, "connections"), check=True)
        bench.sh("umount /mnt/nfs")
        print("\nDone: 3000000 bytes were read back as they were written. All changes are undone.")
    finally:
        bench.close()


if __name__ == "__main__":
    main()
