"""Stands before a Redis: passes everything on, or says to every command what the test wants."""
import re
import select
import socket
import threading
import time

COMMAND = re.compile(rb'\*\d+\r\n\$')


class AngryRedis:
    """.port; passes on to the Redis at `target`, with answers .delay seconds late, until answer() says otherwise."""

    def __init__(self, target):
        self._target = target
        self._lock = threading.Lock()
        self._open = set()
        self._say = None
        self.delay = 0
        self._listener = socket.create_server(('127.0.0.1', 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def answer(self, say):
        """From now on each command of new connections is answered with these bytes (those that are open are cut): b'' for
        silence, a function for an endless answer, made of pieces that it returns; None: the real Redis again."""
        with self._lock:
            self._say = say
            self._cut()

    def close(self):
        with self._lock:
            self._listener.close()
            self._cut()

    def _cut(self):
        for s in self._open:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(client)
                say = self._say
            threading.Thread(target=self._serve, args=(client, say), daemon=True).start()

    def _serve(self, client, say):
        try:
            if say is None:
                self._pass_on(client)
            else:
                self._answer(client, say)
        except OSError:
            pass
        with self._lock:
            self._open.discard(client)
        client.close()

    def _answer(self, client, say):
        asked = b''
        while data := client.recv(65536):
            asked += data
            for _ in COMMAND.findall(asked):
                client.sendall(say() if callable(say) else say)
            while callable(say):
                client.sendall(say())
            last = asked.rfind(b'*')
            asked = asked[last + 1:] if last >= 0 else b''

    def _pass_on(self, client):
        with socket.create_connection(('127.0.0.1', self._target)) as server:
            with self._lock:
                self._open.add(server)
            other = {client: server, server: client}
            try:
                while True:
                    for s in select.select([client, server], [], [])[0]:
                        data = s.recv(65536)
                        if not data:
                            return
                        if s is server:
                            time.sleep(self.delay)
                        other[s].sendall(data)
            finally:
                with self._lock:
                    self._open.discard(server)
