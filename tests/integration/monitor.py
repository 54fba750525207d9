"""What /healthz, /readyz and /metrics of a reinsd say."""
import http.client
import re
import ssl

SAMPLE = re.compile(r'([a-z_0-9]+)(?:\{(.*)\})? (\S+)$')


def get(cluster, path, method='GET', alpn=None):
    """(status, body, headers)"""
    if cluster.certs:
        context = ssl.create_default_context(cafile=cluster.certs.ca)
        if alpn:
            context.set_alpn_protocols(alpn)
        context.load_cert_chain(cluster.certs.path('client-admin'), cluster.certs.key('client-admin'))
        connection = http.client.HTTPSConnection('localhost', cluster.port, timeout=30, context=context)
    else:
        connection = http.client.HTTPConnection('127.0.0.1', cluster.port, timeout=30)
    try:
        connection.request(method, path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode(), {k.lower(): v for k, v in reply.getheaders()}
    finally:
        connection.close()


def parse(text):
    """{'name' or 'name{labels}': value}; fails for what is no line of the format."""
    found = {}
    for line in text.splitlines():
        if line.startswith('#'):
            continue
        m = SAMPLE.match(line)
        assert m, line
        name = f'{m[1]}{{{m[2]}}}' if m[2] else m[1]
        assert name not in found, name
        found[name] = float(m[3])
    return found


def metrics(cluster):
    status, body, _ = get(cluster, '/metrics')
    assert status == 200, body
    return parse(body)


def brief(cluster):
    """What of them fits into the message of a failed test."""
    return {k: v for k, v in metrics(cluster).items() if v and '_bucket' not in k and 'kind=' not in k}


def readyz(cluster):
    return get(cluster, '/readyz')[:2]


def lines(cluster, area):
    """The log's lines about the coming and going of 'store' or 'lease', debug ones left out."""
    return [line.split(f' {area}: ', 1)[1] for line in cluster.log().splitlines()
            if re.search(rf' (INFO|WARN|ERROR) +{area}: (up|down)', line)]
