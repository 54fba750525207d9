"""nginx and nghttpx before a master, as somebody would put them there."""

import socket
import subprocess

from cluster import dying_with_us, free_port, wait_for

NGINX = """
user root;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_processes 1;
daemon off;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_max_body_size 8m;          # reins says itself what is too large; the default is 1 MiB
    upstream reins {{ server {master}; keepalive 16; }}
    server {{
        listen 127.0.0.1:{port} http2;
        # A worker's stream, a log that is followed, a task that is waited for: these are silent for long.
        grpc_read_timeout 1h;
        grpc_send_timeout 1h;
        client_body_timeout 1h;
        location / {{
            grpc_pass {grpc}reins;
            {grpc_tls}
        }}
    }}
    server {{
        # HTTP/1.1, for JSON and browsers.
        listen 127.0.0.1:{port_1};
        location / {{
            proxy_pass {http}://reins;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host localhost; # a master that asks nobody who he is takes no names of others
            proxy_buffering off;      # streams come as they are written
            proxy_read_timeout 1h;
            {http_tls}
        }}
    }}
}}
"""

TLS = """
            {kind}_ssl_certificate {cert};
            {kind}_ssl_certificate_key {key};
            {kind}_ssl_trusted_certificate {ca};
            {kind}_ssl_verify on;
            {kind}_ssl_name localhost;
"""


class Through:
    """A place that is reached through a proxy in clear text; what else a test looks at is the master's own."""

    certs = None

    def __init__(self, place, command, folder, port, port_1=None):
        self.place, self.folder = place, folder
        self.address, self.address_1 = f"127.0.0.1:{port}", f"127.0.0.1:{port_1}"
        with open(folder / "log", "ab") as log:
            self.process = subprocess.Popen([*dying_with_us(), *map(str, command)], stdout=log, stderr=log)
        wait_for(lambda: all(self._open(p) for p in (port, port_1) if p), lambda: f"the proxy listens: {(folder / 'log').read_text()}")

    def _open(self, port):
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    @property
    def url(self):
        return self.address

    def __getattr__(self, name):
        return getattr(self.place, name)

    def close(self):
        self.process.terminate()
        self.process.wait(30)


def nginx(place, folder):
    port, port_1 = free_port(), free_port()
    tls = dict.fromkeys(("grpc_tls", "http_tls"), "")
    if place.certs:
        c = place.certs
        tls = {f"{short}_tls": TLS.format(kind=kind, ca=c.ca, cert=c.path("client-admin"), key=c.key("client-admin"))
               for short, kind in (("grpc", "grpc"), ("http", "proxy"))}
    schemes = {"grpc": "grpcs://", "http": "https"} if place.certs else {"grpc": "grpc://", "http": "http"}
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, port_1=port_1, master=place.address, **schemes, **tls))
    return Through(place, ["nginx", "-e", folder / "error.log", "-p", folder, "-c", folder / "nginx.conf"], folder, port, port_1)


def nghttpx(place, folder):
    port = free_port()
    backend = f"127.0.0.1,{place.port};;proto=h2" + (";tls;sni=localhost" if place.certs else "")
    tls = [f"--cacert={place.certs.ca}", f"--client-cert-file={place.certs.path('client-admin')}",
           f"--client-private-key-file={place.certs.key('client-admin')}"] if place.certs else []
    (folder / "none.conf").touch()
    command = ["nghttpx", f"--conf={folder / 'none.conf'}", f"--frontend=127.0.0.1,{port};no-tls", f"--backend={backend}", *tls,
               "--workers=1", "--errorlog-file=/dev/stderr",
               # These are silent for long: a worker's stream, a log that is followed, a task that is waited for.
               "--stream-read-timeout=1h", "--stream-write-timeout=1h", "--frontend-http2-read-timeout=1h", "--backend-read-timeout=1h"]
    return Through(place, command, folder, port)
