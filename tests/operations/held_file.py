# SPDX-License-Identifier: Apache-2.0
"""A file whose open() blocks until it is released, like that of a file server that does not answer. Uses fanotify's permission events."""
import ctypes
import os
import struct

from planes import Skipped

FAN_CLOEXEC, FAN_CLASS_CONTENT = 0x1, 0x4
FAN_MARK_ADD = 0x1
FAN_OPEN_PERM = 0x10000
FAN_ALLOW = 1
AT_FDCWD = -100
EVENT = struct.Struct("=IBBHQii")  # struct fanotify_event_metadata

libc = ctypes.CDLL(None, use_errno=True)
libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]


class HeldFile:
    """Holds the file. This process must not open it before the hold ends."""

    def __init__(self, path):
        self.fd = libc.fanotify_init(FAN_CLOEXEC | FAN_CLASS_CONTENT, os.O_RDONLY)
        if self.fd < 0 or libc.fanotify_mark(self.fd, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, path.encode()) != 0:
            raise Skipped(f"This kernel has no permission events of fanotify ({os.strerror(ctypes.get_errno())}).")
        self.waiting = []

    def wait_for_opener(self):
        """Waits until a process tries to open the file."""
        data = os.read(self.fd, 4096)
        for at in range(0, len(data), EVENT.size):
            self.waiting.append(EVENT.unpack_from(data, at)[5])

    def let_go(self):
        for fd in self.waiting:
            os.write(self.fd, struct.pack("=iI", fd, FAN_ALLOW))
            os.close(fd)
        self.waiting = []

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        """Ends the hold; the kernel releases the waiting processes."""
        self.let_go()
        os.close(self.fd)
