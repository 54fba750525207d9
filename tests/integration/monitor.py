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


def conventions(text):
    """What of a page does not follow the conventions of Prometheus, in words; [] where all of it does."""
    families, wrong, current, types = {}, [], None, {}
    for line in text.splitlines():
        words = line.split(' ', 3)
        if line.startswith('# HELP '):
            current = words[2]
            if current in families:
                wrong.append(f'{current}: twice')
            if len(words) < 4 or not words[3].strip().endswith('.'):
                wrong.append(f'{current}: its help is no sentence')
            families[current] = []
        elif line.startswith('# TYPE '):
            if words[2] != current or words[3] not in ('counter', 'gauge', 'histogram'):
                wrong.append(f'{line}: its help does not stand before it, or the type is unknown')
            types[current] = words[3]
        else:
            m = SAMPLE.match(line)
            if not m:
                wrong.append(f'{line}: no sample')
                continue
            base = re.sub('_(bucket|sum|count)$', '', m[1]) if types.get(current) == 'histogram' else m[1]
            if base != current or current not in types:
                wrong.append(f'{line}: without help and type right before it')
                continue
            families[current].append((m[1], m[2] or '', float(m[3])))
    for name, samples in families.items():
        wrong += [f'{name}: {fault}' for fault in faults(name, types.get(name), samples)]
    return wrong


UNITS = 'milliseconds|microseconds|nanoseconds|minutes|hours|days|ms|us|ns|kilobytes|megabytes|kib|mib|percent|bits'


def faults(name, kind, samples):
    if not re.fullmatch('(reins|process)(_[a-z0-9]+)+', name):
        yield 'a name is reins_ or process_ and lower case words'
    if (kind == 'counter') != name.endswith('_total'):
        yield 'counters, and only these, end in _total'
    if re.search(f'_({UNITS})(_|$)', name):
        yield 'base units are seconds and bytes'
    if kind == 'histogram' and not re.search('_(seconds|bytes)$', name):
        yield 'a histogram ends in its unit'
    if re.search('_(counter|gauge|histogram)(_|$)', name) or (kind != 'histogram' and re.search('_(sum|count|bucket)$', name)):
        yield 'no types in names'
    if not samples:
        yield 'no samples'
    if len({(n, labels) for n, labels, _ in samples}) != len(samples):
        yield 'a series twice'
    if kind == 'counter' and any(value < 0 for _, _, value in samples):
        yield 'below 0'
    sets = {tuple(re.findall('([a-z_]+)="', re.sub(',?le="[^"]*"', '', labels))) for _, labels, _ in samples}
    if len(sets) > 1:
        yield f'different labels: {sets}'
    if kind == 'histogram':
        yield from histogram_faults(name, samples)


def histogram_faults(name, samples):
    series = {}
    for sample, labels, value in samples:
        key = re.sub(',?le="[^"]*"', '', labels)
        series.setdefault(key, {}).setdefault(sample[len(name):], []).append((labels, value))
    for key, parts in series.items():
        edges = [re.search('le="([^"]*)"', labels)[1] for labels, _ in parts.get('_bucket', [])]
        counts = [value for _, value in parts.get('_bucket', [])]
        if edges[-1:] != ['+Inf'] or [float(e) for e in edges] != sorted(float(e) for e in edges):
            yield f'{{{key}}}: buckets out of order, or without +Inf'
        if counts != sorted(counts) or [v for _, v in parts.get('_count', [])] != counts[-1:] or len(parts.get('_sum', [])) != 1:
            yield f'{{{key}}}: buckets, _sum and _count do not fit each other'


def metrics(cluster):
    status, body, _ = get(cluster, '/metrics')
    assert status == 200, body
    return parse(body)


def handled(cluster, code):
    """Calls of all methods that ended so."""
    return sum(v for k, v in metrics(cluster).items() if k.startswith('reins_rpc_handled_total{') and f'code="{code}"' in k)


def brief(cluster):
    """What of them fits into the message of a failed test."""
    return {k: v for k, v in metrics(cluster).items() if v and '_bucket' not in k and 'kind=' not in k}


def readyz(cluster):
    return get(cluster, '/readyz')[:2]


def lines(cluster, area):
    """The log's lines about the coming and going of 'store' or 'lease', debug ones left out."""
    return [line.split(f' {area}: ', 1)[1] for line in cluster.log().splitlines()
            if re.search(rf' (INFO|WARN|ERROR) +{area}: (up|down)', line)]
