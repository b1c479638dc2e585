# SPDX-License-Identifier: Apache-2.0
"""A TCP relay between the gateway and its upstream. It cuts connections, and holds or delays their data, while the upstream keeps running and
caches its replies."""
import collections
import contextlib
import queue
import select
import socket
import struct
import threading
import time

LISTEN, SOURCE, SERVER = "127.0.0.1", "127.0.0.2", "127.0.0.1"
MOST_WAITING = 1 << 20  # bytes of one direction; above it the relay stops reading, and TCP blocks the sender
CALLS, REPLIES = "calls", "replies"
NFS, NFS3 = 100003, 3
# CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK of NFS version 3.
ONLY_ONCE = range(8, 16)


class Heads:
    """Finds RPC messages in a stream of records: the first bytes of each."""
    BYTES = 24  # XID, type; for a call also RPC version, program, version, procedure

    def __init__(self):
        self.pending = b""
        self.skip = 0         # rest of a fragment
        self.continues = False  # the next fragment is of the same record

    def feed(self, data):
        self.pending += data
        while True:
            if self.skip:
                skipped = min(self.skip, len(self.pending))
                self.pending = self.pending[skipped:]
                self.skip -= skipped
            if self.skip or len(self.pending) < 4:
                return
            mark, = struct.unpack_from(">I", self.pending)
            length, first = mark & 0x7fffffff, not self.continues
            if len(self.pending) < 4 + min(length, self.BYTES):
                return
            self.continues = not mark >> 31
            self.skip = 4 + length
            if first:
                yield self.pending[4:4 + min(length, self.BYTES)]


class Flow:
    """One direction of a connection."""

    def __init__(self, source, sink):
        self.source, self.sink = source, sink
        self.waiting = collections.deque()  # (time from which it may be sent, bytes)
        self.bytes = 0
        self.heads = Heads()


class Pair:
    def __init__(self, client, server):
        self.client, self.server = client, server
        self.flows = {CALLS: Flow(client, server), REPLIES: Flow(server, client)}
        self.calls = {}   # XID -> whether it is a non-idempotent call of version 3
        self.once = 0     # replies to such calls that the relay holds

    def note(self, direction, data):
        for head in self.flows[direction].heads.feed(data):
            if len(head) < 8:
                continue
            xid, kind = struct.unpack_from(">II", head)
            if direction == CALLS and kind == 0 and len(head) == Heads.BYTES:
                _, program, version, procedure = struct.unpack_from(">4I", head, 8)
                self.calls[xid] = program == NFS and version == NFS3 and procedure in ONLY_ONCE
            elif direction == REPLIES and kind == 1:
                self.once += self.calls.pop(xid, False)


def reset(connection):
    """Closes the connection by a reset, so that its port is free immediately."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Relay:
    """Listens at `port`. The upstream sees each connection with the source port that the gateway uses, by which it recognizes repeated calls.
    The public methods are for the test's thread."""

    def __init__(self, lab, port, server_port):
        self.lab, self.port, self.server_port = lab, port, server_port
        self.orders = queue.Queue()
        self.wakes, self.wake = socket.socketpair()
        self.listener = None
        self.pairs = []
        self.held = set()
        self.trapping_now = False
        self.delay_s = 0.0
        self.troubles = []  # errors of the relay itself, which invalidate the test
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        self.listen()

    # --- For the test

    def listen(self):
        self.order(self.do_listen)

    def refuse(self):
        """Acts like a host without the server: ends connections, and refuses new ones."""
        self.order(self.do_refuse)

    def cut(self):
        """Ends all connections and drops their data. Returns the number of lost replies to non-idempotent calls."""
        return self.order(self.do_cut)

    def replies_held(self):
        """Returns the number of replies to non-idempotent calls that the relay holds."""
        return self.order(lambda: sum(pair.once for pair in self.pairs))

    def bytes_held(self):
        return self.order(lambda: sum(flow.bytes for pair in self.pairs for flow in pair.flows.values()))

    @contextlib.contextmanager
    def holding(self, *directions):
        """Holds all data of these directions while the body runs."""
        self.order(lambda: self.held.update(directions))
        try:
            yield
        finally:
            self.order(self.held.clear)

    @contextlib.contextmanager
    def trapping(self):
        """Holds all replies while the body runs, beginning with the first that answers a non-idempotent call."""
        def end():
            self.trapping_now = False
            self.held.clear()
        self.order(lambda: setattr(self, "trapping_now", True))
        try:
            yield
        finally:
            self.order(end)

    @contextlib.contextmanager
    def delaying(self, seconds):
        self.order(lambda: setattr(self, "delay_s", seconds))
        try:
            yield
        finally:
            self.order(lambda: setattr(self, "delay_s", 0.0))

    def order(self, what):
        """Executes a function in the relay's thread, which owns all state."""
        answer = queue.Queue()
        self.orders.put((what, answer))
        self.wake.send(b"!")
        result = answer.get(timeout=60)
        if isinstance(result, Exception):
            raise result
        return result

    # --- The thread

    def run(self):
        with self.lab.inside():
            while True:
                self.turn()

    def turn(self):
        now = time.monotonic()
        poll, flows = select.poll(), {}
        poll.register(self.wakes, select.POLLIN)
        if self.listener:
            poll.register(self.listener, select.POLLIN)
        due = now + 1
        for pair in self.pairs:
            events = {pair.client.fileno(): 0, pair.server.fileno(): 0}
            for direction, flow in pair.flows.items():
                flows[flow.source.fileno(), select.POLLIN] = flows[flow.sink.fileno(), select.POLLOUT] = (pair, direction)
                if flow.bytes < MOST_WAITING:
                    events[flow.source.fileno()] |= select.POLLIN
                if flow.waiting and direction not in self.held:
                    due = min(due, flow.waiting[0][0])
                    if flow.waiting[0][0] <= now:
                        events[flow.sink.fileno()] |= select.POLLOUT
            for number, wanted in events.items():
                poll.register(number, wanted)
        ready = dict(poll.poll(max(0, due - now) * 1000 + 1))
        if self.wakes.fileno() in ready:
            return self.obey()  # an order may close ready sockets
        for number, event in ready.items():
            if (number, select.POLLIN) in flows:
                self.serve(number, event, flows)
            else:
                self.accept()

    def serve(self, number, event, flows):
        for what, move in ((select.POLLIN, self.take_in), (select.POLLOUT, self.pass_on)):
            pair, direction = flows[number, what]
            if pair in self.pairs and event & (what | (select.POLLHUP | select.POLLERR if what == select.POLLIN else 0)):
                try:
                    move(pair, direction)
                except BlockingIOError:
                    pass
                except OSError:
                    self.drop(pair)

    def obey(self):
        self.wakes.recv(4096)
        while not self.orders.empty():
            what, answer = self.orders.get()
            try:
                answer.put(what())
            except Exception as error:  # passed to the thread that gave the order
                answer.put(error)

    def take_in(self, pair, direction):
        flow = pair.flows[direction]
        data = flow.source.recv(262144)
        if not data:
            return self.drop(pair)
        pair.note(direction, data)
        if self.trapping_now and pair.once:
            self.held.add(REPLIES)
        flow.waiting.append((time.monotonic() + self.delay_s, data))
        flow.bytes += len(data)

    def pass_on(self, pair, direction):
        flow = pair.flows[direction]
        due, data = flow.waiting.popleft()
        sent = flow.sink.send(data)
        flow.bytes -= sent
        if sent < len(data):
            flow.waiting.appendleft((due, data[sent:]))
        elif direction == REPLIES and not flow.waiting:
            pair.once = 0

    def accept(self):
        try:
            client, (_, port) = self.listener.accept()
        except ConnectionAbortedError:
            return
        server = socket.socket()
        try:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((SOURCE, port))
            server.settimeout(5)
            server.connect((SERVER, self.server_port))
        except ConnectionRefusedError:
            reset(server)
            return reset(client)
        except OSError as error:
            self.troubles.append(f"from port {port}: {error}")
            reset(server)
            return reset(client)
        for connection in (client, server):
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pairs.append(Pair(client, server))

    def drop(self, pair):
        self.pairs.remove(pair)
        reset(pair.client)
        reset(pair.server)

    def do_cut(self):
        lost = sum(pair.once for pair in self.pairs)
        for pair in list(self.pairs):
            self.drop(pair)
        return lost

    def do_listen(self):
        if not self.listener:
            self.listener = socket.create_server((LISTEN, self.port), backlog=64)

    def do_refuse(self):
        if self.listener:
            self.listener.close()
            self.listener = None
        return self.do_cut()
