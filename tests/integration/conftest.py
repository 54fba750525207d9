import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from cluster import cluster, make_cluster, need_reinsd, quick, servers, shared  # noqa: E402,F401
from fake_worker import make_worker  # noqa: E402,F401
