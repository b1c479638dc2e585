# SPDX-License-Identifier: Apache-2.0
"""Prints the state of a sluice-dataplane in gdb, from a running process or a core:

    gdb -p PID -x sluice-gdb.py        gdb sluice-dataplane CORE -x sluice-gdb.py

    sluice reactors
    sluice connections [REACTOR.CONNECTION]
    sluice slots [REACTOR.CONNECTION]
    sluice requests [REACTOR.CONNECTION]
    sluice queue-pairs [REACTOR.CONNECTION]

The script starts at sluice::process::debug_anchor and only reads memory; it calls no function of the program. The functions that make a
row name all members. A member that this build does not have leaves a '?' in its column, and a sentence below the table."""
import ipaddress
import re

import gdb

ANCHOR = "sluice::process::debug_anchor"


class NoMember(gdb.GdbError):
    """A type of this build lacks a member that the script reads."""


def member(value, name, *further):
    """Returns value.name, value.name.further and so on, through references."""
    if value.type.strip_typedefs().code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_PTR):
        value = value.referenced_value()
    try:
        found = value[name]
    except gdb.MemoryError:
        raise
    except gdb.error as error:
        of = str(value.type.unqualified())
        raise NoMember(f"{of} has no member '{name}': this sluice-gdb.py is for another version of the program.") from error
    return member(found, *further) if further else found


def stored(kind):
    """Returns the base classes and non-static fields of a structure."""
    return [field for field in kind.strip_typedefs().fields() if hasattr(field, "bitpos")]


def pointers(value):
    """Returns the pointers in an object of the standard library, in order: one of a unique_ptr, begin and end of a vector."""
    kind = value.type.strip_typedefs()
    if kind.code == gdb.TYPE_CODE_PTR:
        return [value]
    if kind.code != gdb.TYPE_CODE_STRUCT:
        return []
    return [pointer for field in stored(kind) for pointer in pointers(value[field])]


def owned(unique_ptr):
    return pointers(unique_ptr)[0]


def elements(vector):
    begin, end = pointers(vector)[:2]
    return [begin[i] for i in range(int(end - begin))]


def objects(array):
    """Returns the elements of a sluice::ObjectArray."""
    kind = array.type.strip_typedefs().template_argument(0)
    first = owned(member(array, "places_"))
    return [member(first[i], "bytes").address.cast(kind.pointer()).dereference() for i in range(int(member(array, "size_")))]


def word(value):
    """Returns the last part of an enumerator's name, or its number if it has no name."""
    for field in value.type.strip_typedefs().unqualified().fields():
        if field.enumval == int(value):
            return field.name.rsplit("::", 1)[-1]
    return str(int(value))


def integer(value):
    """Returns the value of an integer, an enumeration or a std::atomic."""
    kind = value.type.strip_typedefs()
    if kind.code == gdb.TYPE_CODE_STRUCT:
        return integer(value[stored(kind)[0]])
    return int(value)


def address(peer):
    octets = gdb.selected_inferior().read_memory(int(peer.address), 16)
    shown = ipaddress.IPv6Address(bytes(octets))
    return str(shown.ipv4_mapped or shown)


class Table:
    """Rows of named cells. A cell that cannot be read is '?'; the reason is printed once below the table."""

    def __init__(self, empty):
        self.empty, self.rows, self.notes = empty, [], []

    def add(self, **cells):
        self.rows.append({name.replace("_", "-"): self.read(cell) for name, cell in cells.items()})

    def read(self, cell):
        try:
            return str(cell() if callable(cell) else cell)
        except NoMember as missing:
            note = str(missing)
        except gdb.MemoryError as error:
            note = f"{error}: a core lacks mappings that /proc/PID/coredump_filter excludes, such as shared files."
        if note not in self.notes:
            self.notes.append(note)
        return "?"

    def show(self):
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        lines = [names] + [[row.get(name, "-") for name in names] for row in self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
        for line in lines if self.rows else []:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        if not self.rows:
            print(self.empty)
        for note in self.notes:
            print(note)


# --- From the anchor to the connections


def cores():
    anchor = gdb.lookup_global_symbol(ANCHOR)
    if anchor is None:
        raise gdb.GdbError(f"There is no {ANCHOR} here: this is not sluice-dataplane, or its symbols are missing (package "
                           "sluice-dbgsym, or the program as it was built).")
    try:
        data_plane = anchor.value()
        started = int(data_plane) != 0
    except gdb.MemoryError as error:
        raise gdb.GdbError("There is no process: attach to one, or load a core.") from error
    if not started:
        raise gdb.GdbError("The data plane has no reactors now, because it is starting or has stopped.")
    return [owned(core) for core in elements(member(data_plane, "cores_"))]


class Connection:
    """A connection of the program, with its name: "1.4" is connection 4 of reactor 1."""

    def __init__(self, name, core, value):
        self.name, self.core, self.value = name, core, value

    def link(self, *names):
        return member(self.value, "link_", *names)

    def responder(self, *names):
        return member(self.value, "responder_", *names)

    def requester(self):
        """Returns the requester, or None if the connection has none."""
        requester = member(self.value, "roles_", "requester_")
        return requester.dereference() if int(requester) else None

    def queue_pair(self):
        """Returns the queue pair with its dynamic type, or None if the connection has none."""
        queue_pair = owned(self.link("qp_"))
        if not int(queue_pair):
            return None
        return queue_pair.cast(queue_pair.dynamic_type).dereference()

    def is_closed(self):
        return word(self.link("state_")) == "Closed"


def connections(wanted):
    """Returns the connections that are not closed, or the named one."""
    if wanted and not re.fullmatch(r"\d+\.\d+", wanted):
        raise gdb.GdbError(f"'{wanted}' is not the name of a connection. Use REACTOR.CONNECTION, such as 0.3.")
    found = []
    for reactor, core in enumerate(cores()):
        for number, connection in enumerate(objects(member(core, "engine", "connections_"))):
            found.append(Connection(f"{reactor}.{number}", core, connection))
    if not wanted:
        return [connection for connection in found if not connection.is_closed()]
    chosen = [connection for connection in found if connection.name == wanted]
    if not chosen:
        raise gdb.GdbError(f"There is no connection {wanted}. The connections are {found[0].name} to {found[-1].name}.")
    return chosen


# --- The tables. Every function that adds a row names the members that it shows


def add_reactor(table, number, core):
    reactor, engine = member(core, "reactor"), member(core, "engine")

    def slots():
        state = gdb.lookup_type("sluice::rpcrdma::CallSlot::State")
        counts = member(engine, "responders_", "measurement", "slots_in_state")
        counts = counts[stored(counts.type)[0]]
        shown = [(field.name.rsplit("::", 1)[-1], int(counts[field.enumval])) for field in state.fields()]
        return " ".join(f"{name}={count}" for name, count in shown if count)

    table.add(reactor=number,
              state=lambda: "stopped" if integer(member(reactor, "stopped_")) else "running",
              connections=lambda: integer(member(reactor, "connections_", "in_use_")),
              polls_busy=lambda: integer(member(reactor, "counters_", "polls_busy")),
              polls_idle=lambda: integer(member(reactor, "counters_", "polls_idle")),
              completions=lambda: integer(member(reactor, "counters_", "work_completions")),
              call_slots=slots)


def add_connection(table, connection):
    def number_of_queue_pair():
        queue_pair = connection.queue_pair()
        return integer(member(queue_pair, "number_")) if queue_pair is not None else "-"

    def requests():
        requester = connection.requester()
        return integer(member(requester, "outstanding_")) if requester is not None else "-"

    def state():
        name = word(connection.link("state_"))
        reason = word(connection.link("close_reason_"))
        return name if reason == "None" else f"{name} ({reason})"

    table.add(connection=connection.name, state=state,
              peer=lambda: address(connection.link("peer_")),
              version=lambda: word(connection.link("version_")),
              credits=lambda: integer(connection.responder("grant_")),
              slots=lambda: integer(connection.responder("open_slots_")),
              busy=lambda: integer(connection.responder("busy_")),
              calls=lambda: integer(connection.responder("calls_")),
              receives=lambda: integer(connection.link("receives_", "posted_")),
              requests=requests, queue_pair=number_of_queue_pair)


def add_slots(table, connection):
    engine = member(connection.core, "engine")

    def age_us():
        # The first clock is as old as the reactor's last iteration with work, and the second as its last control pass.
        now_ns = max(integer(member(engine, "responders_", "measurement", "times", "turn_ns_")),
                     integer(member(engine, "links_", "transmit", "now_ns")))
        return f"{(now_ns - integer(member(slot, 'begun_ns_'))) / 1000:.1f}"

    slots = owned(connection.responder("slots_"))
    for i in range(integer(connection.responder("max_slots_"))):
        slot = slots[i]
        if word(member(slot, "state_")) == "Free":
            continue
        table.add(connection=connection.name, slot=i, state=word(member(slot, "state_")),
                  xid=lambda: f"{integer(member(slot, 'message_', 'header', 'fixed', 'xid')):#010x}",
                  procedure=lambda: ".".join(str(integer(member(slot, "header_", part)))
                                             for part in ("program", "version", "procedure")),
                  age_us=age_us,
                  queued=lambda: "yes" if integer(member(slot, "link", "queue_")) else "no",
                  with_service=lambda: "yes" if integer(member(slot, "with_service_")) else "no",
                  reply_bytes=lambda: integer(member(slot, "payload_bytes_")))


def add_requests(table, connection):
    requester = connection.requester()
    if requester is None:
        return
    now_ns = integer(member(connection.core, "engine", "links_", "transmit", "now_ns"))
    slots = owned(member(requester, "slots_"))
    for i in range(integer(member(requester, "config_", "requests"))):
        slot = slots[i]
        if word(member(slot, "state")) == "Free":
            continue

        def deadline():
            at_ns = integer(member(slot, "deadline_ns"))
            return f"{(at_ns - now_ns) // 1_000_000} ms" if at_ns else "none"

        table.add(connection=connection.name, slot=i, state=word(member(slot, "state")),
                  xid=lambda: f"{integer(member(slot, 'xid')):#010x}",
                  sequence=lambda: integer(member(slot, "sequence")),
                  payload_bytes=lambda: integer(member(slot, "payload_bytes")),
                  windows=lambda: integer(member(slot, "window_count")),
                  sends_posted=lambda: integer(member(slot, "send_posted")) + integer(member(slot, "parts_posted")),
                  deadline=deadline)


# The indices of the drivers' rings are free-running, modulo 2^32.
def distance(head, tail):
    return (integer(tail) - integer(head)) & 0xffffffff


def cells(queue_pair, **members):
    """Returns a cell for each of these members, which are numbers."""
    return {name: lambda names=names: integer(member(queue_pair, *names)) for name, names in members.items()}


def sends(queue_pair):
    return lambda: distance(member(queue_pair, "head_"), member(queue_pair, "tail_"))


def loopback_cells(queue_pair):
    return {"sends": sends(queue_pair),
            "receives": lambda: distance(member(queue_pair, "recv_head_"), member(queue_pair, "recv_tail_")),
            **cells(queue_pair, rnr_rounds=["rnr_rounds_"], on_wire=["on_wire_"]),
            **cells(queue_pair, produced=["sending_", "produced_"], acknowledged=["sending_", "acknowledged_"],
                    received=["receiving_", "received_"], available=["receiving_", "available_"])}


def softroce_cells(queue_pair):
    requester, responder = member(queue_pair, "requester_"), member(queue_pair, "responder_")
    queue = member(requester, "queue_")
    return {"sends": lambda: distance(member(queue, "head"), member(queue, "tail")),
            **cells(responder, receives=["recv_queue_", "count_"], expected_psn=["expected_psn_"], msn=["msn_"]),
            **cells(queue_pair, remote_qp=["path_", "remote_qp_"]),
            **cells(requester, next_psn=["psns_", "next_"], unacked_psn=["psns_", "unacknowledged_"], end_psn=["psns_", "end_"],
                    reads_pending=["reads_pending_"], retries=["retries_"], rnr_rounds=["rnr_rounds_"])}


def verbs_cells(queue_pair):
    rings = {ring: lambda ring=ring: distance(member(queue_pair, f"{ring}_", "tail_"), member(queue_pair, f"{ring}_", "head_"))
             for ring in ("sends", "receives")}
    return {"state": lambda: word(member(queue_pair, "stage_", "state_")), **rings}


DRIVERS = {"LoopbackQueuePair": ("loopback", loopback_cells), "SoftQueuePair": ("softroce", softroce_cells),
           "VerbsQueuePair": ("verbs", verbs_cells)}


def add_queue_pair(table, connection):
    queue_pair = connection.queue_pair()
    if queue_pair is None:
        return
    kind = str(queue_pair.type.unqualified()).rsplit("::", 1)[-1]
    driver, more = DRIVERS.get(kind, (kind, lambda _: {}))
    table.add(connection=connection.name, driver=driver, queue_pair=lambda: integer(member(queue_pair, "number_")),
              **{"state": lambda: word(member(queue_pair, "state_")), **more(queue_pair)})


def send_queue(queue_pair):
    """Returns the entries, the index mask, the head and the tail of the send queue of a software driver, or None for other drivers."""
    names = [field.name for field in queue_pair.type.fields()]
    if "requester_" in names:
        queue = member(queue_pair, "requester_", "queue_")
        return pointers(member(queue, "entries_"))[0], integer(member(queue, "mask_")), member(queue, "head"), member(queue, "tail")
    if "send_queue_" in names:
        return (pointers(member(queue_pair, "send_queue_"))[0], integer(member(queue_pair, "send_mask_")), member(queue_pair, "head_"),
                member(queue_pair, "tail_"))
    return None


def add_work_requests(table, connection):
    """Adds the work requests in the send queue of a software driver, oldest first."""
    queue_pair = connection.queue_pair()
    queue = None if queue_pair is None else send_queue(queue_pair)
    if queue is None:
        return
    entries, mask, first, end = queue
    head = integer(first)
    kinds = {field.enumval: field.name.rsplit("::", 1)[-1] for field in gdb.lookup_type("sluice::rpcrdma::WrKind").fields()}
    for i in range(distance(first, end)):
        entry = entries[(head + i) & mask]
        wr_id = integer(member(entry, "wr_id"))
        names = [field.name for field in entry.type.fields()]
        table.add(connection=connection.name, work_request=i, opcode=lambda: word(member(entry, "opcode")),
                  of=f"{kinds.get(wr_id >> 48 & 0xffff, '?')} {wr_id & 0xffff}", bytes=lambda: integer(member(entry, "bytes")),
                  **({"stage": lambda: word(member(entry, "stage"))} if "stage" in names else {}),
                  **(cells(entry, first_psn=["first_psn"], packets=["packets"]) if "first_psn" in names else {}))


class Command(gdb.Command):
    """A subcommand of 'sluice'. Its explanation is gdb's help text."""

    def __init__(self, name, explanation, body):
        self.__doc__ = explanation
        self.body = body
        super().__init__(f"sluice {name}", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        del from_tty
        # Engines and cores are larger than the values that gdb fetches by default. The language of a core without a frame is C.
        for setting in ("set max-value-size unlimited", "set language c++"):
            gdb.execute(setting, to_string=True)
        self.body(argument.strip())


def show_reactors(argument):
    if argument:
        raise gdb.GdbError("'sluice reactors' has no arguments.")
    table = Table("There are no reactors.")
    for number, core in enumerate(cores()):
        add_reactor(table, number, core)
    table.show()


def show_each(empty, *adders):
    def show(argument):
        chosen = connections(argument)
        for number, add in enumerate(adders):
            table = Table(empty)
            for connection in chosen:
                add(table, connection)
            if number == 0 or argument and table.rows:
                table.show()
    return show


class Sluice(gdb.Command):
    """Shows the state of a sluice-dataplane: reactors, connections, call slots, request slots, queue pairs."""

    def __init__(self):
        super().__init__("sluice", gdb.COMMAND_DATA, prefix=True)


Sluice()
Command("reactors", "Shows the reactors: iterations, work completions, connections, call slots by state.", show_reactors)
Command("connections", "Shows the connections that are not closed, or REACTOR.CONNECTION.", show_each("No connection is open.", add_connection))
Command("slots", "Shows the call slots in use, with state, XID and age at the reactor's last iteration; of all connections, or of REACTOR.CONNECTION.",
        show_each("No call slot is in use.", add_slots))
Command("requests", "Shows the request slots in use, where the data plane is the client; of all connections, or of REACTOR.CONNECTION.",
        show_each("No request slot is in use.", add_requests))
Command("queue-pairs", "Shows the queue pairs: state, PSNs or positions, outstanding work; with REACTOR.CONNECTION also each work request of its "
        "send queue.", show_each("There is no queue pair.", add_queue_pair, add_work_requests))
