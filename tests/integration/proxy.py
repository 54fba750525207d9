"""A TCP proxy that can be told to fail: for workers and clients whose network goes bad."""

import selectors
import socket
import struct
import threading


class Proxy:
    """Listens on .address and forwards to `target` ("host:port")."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._peer = {}  # socket -> the other end
        self._held = set()  # sockets that are not read while partitioned
        self._partitioned = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._wake_r, self._wake_w = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_r, selectors.EVENT_READ)
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def drop(self):
        """Ends all connections at once with RST, as a machine does whose process died."""
        with self._lock:
            for s in list(self._peer):
                self._end(s)

    def partition(self):
        """From now on nothing passes and nobody is told; connections stay open, new ones are not answered."""
        with self._lock:
            self._partitioned = True
            for s in self._peer:
                self._hold(s)
            self._selector.unregister(self._listener)

    def held_back(self):
        """What was sent into it and is not passed on, while it is partitioned."""
        with self._lock:
            found = []
            for s in self._held:
                try:
                    found.append(s.recv(1 << 20, socket.MSG_PEEK | socket.MSG_DONTWAIT))
                except OSError:
                    continue
            return b"".join(found)

    def heal(self):
        with self._lock:
            self._partitioned = False
            for s in list(self._held):
                self._held.discard(s)
                self._selector.register(s, selectors.EVENT_READ)
            self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake_w.send(b"x")

    def close(self):
        self._closed = True
        self._wake_w.send(b"x")
        self._thread.join(10)
        self.drop()
        for s in (self._listener, self._wake_r, self._wake_w):
            s.close()

    # ---- inside; the lock is held ----

    def _hold(self, s):
        if s not in self._held:
            self._held.add(s)
            self._selector.unregister(s)

    def _end(self, s):
        if s not in self._peer:
            return
        other = self._peer.pop(s)
        self._peer.pop(other, None)
        for one in (s, other):
            if one in self._held:
                self._held.discard(one)
            else:
                self._selector.unregister(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()

    def _accept(self):
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        for s in (client, server):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(s, selectors.EVENT_READ)
        self._peer[client], self._peer[server] = server, client

    def _forward(self, s):
        if s not in self._peer:
            return
        try:
            data = s.recv(1 << 18)
            if data:
                self._peer[s].sendall(data)
                return
        except OSError:
            pass
        self._end(s)

    def _run(self):
        while not self._closed:
            for key, _ in self._selector.select(0.05):
                with self._lock:
                    if key.fileobj is self._wake_r:
                        self._wake_r.recv(100)
                    elif self._partitioned:
                        continue
                    elif key.fileobj is self._listener:
                        self._accept()
                    else:
                        self._forward(key.fileobj)
