"""A channel to Reins as the environment says:

REINS_SERVER   127.0.0.1:7346 (the default), or https://HOST:PORT for TLS; a worker takes several, with commas between them
REINS_TOKEN    sent with each call; the server may ask for one
REINS_TLS_CA   the authority that signed the server's certificate; without it the system's authorities are asked
REINS_TLS_CERT, REINS_TLS_KEY   a certificate of our own, where the server wants to see one
"""
import json
import os

os.environ.setdefault('GRPC_ENABLE_FORK_SUPPORT', '0')  # programs that are started beside it need none of it
import grpc  # noqa: E402

# Calls that ended with UNAVAILABLE are made again: the server or its store was away. A submit that is made again needs an
# idempotency key, or there may be two tasks.
RETRY = {'methodConfig': [{
    'name': [{'service': 'reins.v1.TaskService'}],
    'retryPolicy': {'maxAttempts': 5, 'initialBackoff': '0.1s', 'maxBackoff': '2s', 'backoffMultiplier': 2,
                    'retryableStatusCodes': ['UNAVAILABLE']},
}]}


def servers():
    return [url for url in os.environ.get('REINS_SERVER', '').split(',') if url] or ['127.0.0.1:7346']


def metadata():
    """To be given to each call."""
    token = os.environ.get('REINS_TOKEN')
    return [('authorization', f'Bearer {token}')] if token else []


def channel(url=None, *options):
    scheme, found, address = (url or servers()[0]).rstrip('/').rpartition('://')
    if found and scheme not in ('http', 'https'):
        raise SystemExit(f'REINS_SERVER: {url}: http:// or https:// was expected')
    options = [
        # Notice a server that is gone without a word, also while a log is followed and nothing is said.
        ('grpc.keepalive_time_ms', 30000),
        ('grpc.keepalive_timeout_ms', 20000),
        ('grpc.max_reconnect_backoff_ms', 2000),
        ('grpc.service_config', json.dumps(RETRY)),
        *options,
    ]
    if scheme != 'https':
        return grpc.insecure_channel(address, options)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_file('REINS_TLS_CA'), private_key=_file('REINS_TLS_KEY'), certificate_chain=_file('REINS_TLS_CERT'))
    return grpc.secure_channel(address, credentials, options)


def _file(variable):
    path = os.environ.get(variable)
    if not path:
        return None
    with open(path, 'rb') as f:
        return f.read()
