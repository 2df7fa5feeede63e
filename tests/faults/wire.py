"""A network for the workers of one job, made of the test's own bytes: every packet between two workers passes through here.

Each slot has a network namespace with one TUN device; a thread reads what the slots send and hands it on, late, twice,
changed or not at all, as `policy` says. The workers' way to the operator is a port of loopback inside each namespace, handed
on by another thread. Nothing is left of it when the process ends. Needs root and /dev/net/tun; nothing else on the machine
is touched.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import threading
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 32_000  # Few packets a step: they all pass through Python.
SMALL_MTU = 1_280  # The least that a network of IPv6 may have.
ENDPOINT_PORT = 8080  # Inside a namespace of its own.
TCP, ICMP = 6, 1
MORE_FRAGMENTS_OR_OFFSET = 0x3FFF
SYN, ACK = 2, 16  # of a TCP header's flags
ROUTER = "10.77.0.1"  # No slot has it.
_libc = ctypes.CDLL(None, use_errno=True)


def available():
    return os.geteuid() == 0 and os.path.exists("/dev/net/tun")


def address(slot):
    return f"10.77.0.{10 + slot}"


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def with_flipped_bit(packet, rng):
    """A TCP segment with one bit of its payload flipped and a checksum that says otherwise; None without enough payload."""
    header = (packet[0] & 15) * 4
    offset = header + (packet[header + 12] >> 4) * 4
    if packet[9] != TCP or len(packet) - offset < 4_000:
        return None  # Handshakes and the like are not what is tested here.
    changed = bytearray(packet)
    changed[rng.randrange(offset + 200, len(packet))] ^= 1 << rng.randrange(8)
    changed[header + 16:header + 18] = b"\0\0"
    pseudo = packet[12:20] + struct.pack("!BBH", 0, TCP, len(packet) - header)
    changed[header + 16:header + 18] = struct.pack("!H", checksum(pseudo + bytes(changed[header:])))
    return bytes(changed)


def port_unreachable(packet):
    """What a firewall on the way answers that rejects a packet: ICMP, of the firewall's address, as if the port were closed."""
    body = struct.pack("!BBHI", 3, 3, 0, 0) + packet[:(packet[0] & 15) * 4 + 8]
    body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 0, 0, 64, ICMP, 0, socket.inet_aton(ROUTER), packet[12:16])
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + body


class Wire:
    """The slots' network. `policy(source, target, packet)` gives the (delay in seconds, packet) to deliver, to whom the packet
    says; set it any time."""

    def __init__(self, job, slots, seed, mtu=MTU):
        self.job, self.rng, self.mtu = job, random.Random(seed), mtu
        self.policy = self.deliver
        self.counts = {"packets": 0, "dropped": 0, "changed": 0, "twice": 0, "rejected": 0, "late": 0, "fragments": 0}
        self.cut_off = set()
        self._tuns, self._namespaces, self._listeners = {}, {}, {}
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._is_over = False
        for slot in range(slots):
            maker = threading.Thread(target=self._make, args=(slot,))
            maker.start()
            maker.join()
            if slot not in self._listeners:
                raise OSError(f"cannot make a network namespace for slot {slot}")
            job.set_slot(slot, "\n".join([
                f"printf %s \"$MUSTER_ENDPOINT\" > {job.directory}/endpoint",
                f"export MUSTER_ENDPOINT=http://127.0.0.1:{ENDPOINT_PORT} MUSTER_BIND={address(slot)}",
                f"ENTER='nsenter --net=/proc/{os.getpid()}/fd/{self._namespaces[slot]} --'"]))
        self._threads = [threading.Thread(target=self._switch), threading.Thread(target=self._proxy)]
        for thread in self._threads:
            thread.start()

    def _make(self, slot):
        # A namespace is the thread's alone, and children that it starts inherit it.
        if _libc.unshare(CLONE_NEWNET) != 0:
            return
        self._namespaces[slot] = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"wire", IFF_TUN | IFF_NO_PI))
        for command in ("link set lo up", f"address add {address(slot)}/24 dev wire", f"link set wire mtu {self.mtu} up"):
            subprocess.run(["ip", *command.split()], check=True)
        self._tuns[slot] = tun
        self._listeners[slot] = socket.create_server(("127.0.0.1", ENDPOINT_PORT), backlog=64)

    # ---- Policies

    def deliver(self, _source, _target, packet):
        return [(0, packet)]

    def cut(self, between):
        """Nothing passes from a slot to another when `between(source, target)`."""
        self.policy = lambda source, target, packet: [] if between(source, target) else [(0, packet)]

    def reject(self, between):
        """The same, and the sender is told so by a firewall on the way."""
        def policy(source, target, packet):
            if not between(source, target):
                return [(0, packet)]
            self.counts["rejected"] += 1
            return [] if packet[9] == ICMP else [(0, port_unreachable(packet))]
        self.policy = policy

    def drop_fragments(self, _source, _target, packet):
        """A policy: of a packet that its sender's kernel has cut nothing passes, as with some network plugins."""
        is_fragment = struct.unpack("!H", packet[6:8])[0] & MORE_FRAGMENTS_OR_OFFSET
        self.counts["fragments"] += bool(is_fragment)
        return [] if is_fragment else [(0, packet)]

    def forget_connections(self):
        """Of TCP passes what is opened from now on, as behind a firewall that has lost its table; datagrams pass."""
        opened = set()

        def policy(source, target, packet):
            header = (packet[0] & 15) * 4
            if packet[9] != TCP:
                return [(0, packet)]
            ends = frozenset([(source, packet[header:header + 2]), (target, packet[header + 2:header + 4])])
            if packet[header + 13] & SYN:
                opened.add(ends)
            return [(0, packet)] if ends in opened else []
        self.policy = policy

    def disturb_dials(self, source, target, late=None):
        """Of the connections that `source` opens to `target` the first is never heard of there, or all are `late` seconds later. Gives, by
        the port of each, in order, how often it was tried."""
        dials = {}

        def policy(one, other, packet):
            header = (packet[0] & 15) * 4
            is_dial = packet[9] == TCP and packet[header + 13] & (SYN | ACK) == SYN
            if (one, other) != (source, target) or not is_dial:
                return [(0, packet)]
            port = packet[header:header + 2]
            dials[port] = dials.get(port, 0) + 1
            if late is None:
                return [] if port == next(iter(dials)) else [(0, packet)]
            return [(late, packet)]
        self.policy = policy
        return dials

    def isolate(self, *slots):
        """These hear nobody, neither the operator, and nobody hears them: as when a node's plug is pulled."""
        self.cut_off = set(slots)
        self.cut(lambda source, target: source in slots or target in slots)

    def heal(self):
        self.cut_off = set()
        self.policy = self.deliver

    def disturb(self, loss=0.0, twice=0.0, late=0.0, delay=(0.0, 0.0)):
        """Packets are lost, come twice, or `late` of them a while after those sent later; all take a time in `delay`."""
        def policy(_source, _target, packet):
            if self.rng.random() < loss:
                return []
            copies = 2 if self.rng.random() < twice else 1
            self.counts["twice"] += copies - 1
            times = [self.rng.uniform(*delay) + (0.02 if self.rng.random() < late else 0) for _ in range(copies)]
            self.counts["late"] += sum(time > 0 for time in times)
            return [(time, packet) for time in times]
        self.policy = policy

    def throttle(self, bytes_per_second, delay, slot, protocols=None, link=False):
        """What the slot sends or gets passes at that rate, in order, each packet `delay` seconds late at least; only that of
        `protocols`, where they are given. The rate is that of each way from a slot to another, or of the slot's `link`, each way."""
        free_at = {}

        def policy(source, target, packet):
            if slot not in (source, target) or (protocols and packet[9] not in protocols):
                return [(0, packet)]
            now = time.monotonic()
            way = source == slot if link else (source, target)
            free_at[way] = max(now, free_at.get(way, now)) + len(packet) / bytes_per_second
            self.counts["late"] += 1
            return [(free_at[way] - now + delay, packet)]
        self.policy = policy

    def flip(self, probability):
        """Some of the large packets arrive with one bit of their payload changed and a right TCP checksum."""
        def policy(_source, _target, packet):
            changed = with_flipped_bit(packet, self.rng) if self.rng.random() < probability else None
            self.counts["changed"] += changed is not None
            return [(0, changed or packet)]
        self.policy = policy

    # ---- Threads

    def _switch(self):
        slots = {address(slot): slot for slot in self._tuns}
        by_fd = {tun: slot for slot, tun in self._tuns.items()}
        poller = select.epoll()
        for fd in [*by_fd, self._wake]:
            poller.register(fd, select.EPOLLIN)
        waiting, number = [], 0
        while not self._is_over:
            timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 1.0
            for fd, _ in poller.poll(timeout):
                for _ in range(64 if fd in by_fd else 0):
                    try:
                        packet = os.read(fd, 65536)
                    except BlockingIOError:
                        break
                    target = slots.get(socket.inet_ntoa(packet[16:20])) if packet[0] >> 4 == 4 else None
                    if target is None:
                        continue
                    self.counts["packets"] += 1
                    deliveries = self.policy(by_fd[fd], target, packet)
                    self.counts["dropped"] += not deliveries
                    for delay, one in deliveries:
                        number += 1
                        receiver = slots[socket.inet_ntoa(one[16:20])]
                        heapq.heappush(waiting, (time.monotonic() + delay, number, receiver, one))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(waiting)
                try:
                    os.write(self._tuns[target], packet)
                except OSError:
                    self.counts["dropped"] += 1

    def _proxy(self):
        """Hands the workers' posts on to the endpoint, unless the slot is cut off."""
        poller, ends = select.epoll(), {}
        by_fd = {listener.fileno(): (slot, listener) for slot, listener in self._listeners.items()}
        for fd in by_fd:
            poller.register(fd, select.EPOLLIN)

        def drop(one):
            for end in (one, ends[one.fileno()][0]):
                ends.pop(end.fileno(), None)
                poller.unregister(end.fileno())
                end.close()

        while not self._is_over:
            for fd, _ in poller.poll(0.2):
                if fd in by_fd:
                    slot, listener = by_fd[fd]
                    inside, _ = listener.accept()
                    try:
                        with open(f"{self.job.directory}/endpoint", encoding="utf-8") as file:
                            port = int(file.read().rstrip("/").rsplit(":", 1)[1])
                        outside = socket.create_connection(("127.0.0.1", port), 5)
                    except (OSError, ValueError, IndexError):
                        inside.close()
                        continue
                    for one, other in ((inside, outside), (outside, inside)):
                        ends[one.fileno()] = other, slot, one
                        poller.register(one.fileno(), select.EPOLLIN)
                elif fd in ends:
                    other, slot, one = ends[fd]
                    if slot in self.cut_off:
                        drop(one)
                        continue
                    try:
                        data = one.recv(65536)
                        if data:
                            other.sendall(data)
                    except OSError:
                        data = b""
                    if not data:
                        drop(one)

    def close(self):
        self._is_over = True
        os.eventfd_write(self._wake, 1)
        for thread in self._threads:
            thread.join()
        for listener in self._listeners.values():
            listener.close()
        for fd in [*self._tuns.values(), *self._namespaces.values(), self._wake]:
            os.close(fd)
