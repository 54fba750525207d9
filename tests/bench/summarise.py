"""Prints the results of tests/bench/run as a table: figures, ratios to this machine's limits in the same run, goals."""
import collections
import json
import statistics
import sys

EMBEDDED = "sqlite_"
GOAL_SUBMIT, GOAL_SUBMIT_RATIO, GOAL_E2E, GOAL_RECEIPT_MS = 25000, 0.15, 15000, 3.0


def load(path):
    phases = collections.defaultdict(list)
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            one = json.loads(line)
            phases[one["phase"]].append(one["r"])
    return phases


class Table:
    def __init__(self, phases):
        self.phases = phases

    def values(self, phase, key):
        return [r[key] for r in self.phases.get(phase, []) if key in r]

    def median(self, phase, key):
        values = self.values(phase, key)
        return statistics.median(values) if values else None

    def rate(self, title, phase, key, beside=""):
        values = self.values(phase, key)
        if not values:
            return
        spread = f" ({min(values):,.0f}-{max(values):,.0f})" if len(values) > 1 else ""
        print(f"  {title:<46}{statistics.median(values):>10,.0f} /s{spread:<20}  {beside}".rstrip())

    def ratio(self, phase, key, base_phase, base_key):
        a, b = self.median(phase, key), self.median(base_phase, base_key)
        return a / b if a and b else None

    def times(self, title, phase, key, beside=""):
        for r in self.phases.get(phase, [])[-1:]:
            h = r.get(key)
            if h:
                print(f"  {title:<46} p50 {h['p50']:.2f}  p90 {h['p90']:.2f}  p99 {h['p99']:.2f}  max {h['max']:.2f} ms  {beside}".rstrip())

    def cost(self, title, phase):
        runs = [r for r in self.phases.get(phase, []) if "cpu_s_per_100k" in r]
        if not runs:
            return
        cpu = {k: statistics.median(r["cpu_s_per_100k"][k] for r in runs) for k in runs[0]["cpu_s_per_100k"]}
        rss = runs[-1]["memory_mib"]
        print(f"  {title:<24}" + "".join(f"{k} {v:.2f} s" + ("" if k == "load" else f", {rss[k]:.0f} MiB") + "   " for k, v in cpu.items()).rstrip())


def verdict(met):
    return "met" if met else "MISSED"


def print_limits(t):
    print("This machine (Postgres with fsync)")
    t.rate("one-row insert and commit, 1 client", "insert-1-c1", "rows_per_s")
    t.rate("the same, 16 clients", "insert-1-c16", "rows_per_s")
    t.rate("the same, 64 clients", "insert-1-c64", "rows_per_s")
    t.rate("array insert of 500, 1 client", "insert-500-c1", "rows_per_s")
    for batch in (1, 64, 500):
        phase = f"store-{batch}"
        if phase in t.phases:
            print(f"Our statements, {batch} rows each, 4 on the way")
            for key, title in (("insert", "insert as PENDING"), ("insert_running", "insert as RUNNING (eager match)"),
                               ("claim", "claim"), ("record", "record an outcome")):
                cpu = t.median(phase, key + "_cpu_s_per_100k")
                t.rate(title, phase, key + "_per_s", f"{cpu:.2f} s of Postgres' CPU for 100,000" if cpu else "")


def print_submit(t):
    print("Submits, each acknowledged after its commit")
    single = t.ratio("submit-1", "submits_per_s", "insert-1-c1", "rows_per_s")
    t.rate("1 at a time", "submit-1", "submits_per_s", f"{single:.2f} of one-row inserts, 1 client" if single else "")
    for phase, title in (("submit-64", "64 in flight, 1 connection"), ("submit-64-c16", "64 in flight, 16 connections"),
                         ("submit-500", "500 in flight, 4 connections"), ("submit-batch-500", "batches of 500, 4 in flight")):
        ratio, rate = t.ratio(phase, "submits_per_s", "insert-500-c1", "rows_per_s"), t.median(phase, "submits_per_s")
        if rate is None:
            continue
        beside = f"{ratio:.2f} of array inserts" if ratio else ""
        if phase == "submit-64":
            met = rate >= GOAL_SUBMIT or (ratio or 0) >= GOAL_SUBMIT_RATIO
            beside += f"; goal {GOAL_SUBMIT:,}/s or {GOAL_SUBMIT_RATIO}: {verdict(met)}"
        t.rate(title, phase, "submits_per_s", beside)
    for phase in ("submit-1", "submit-64", "submit-batch-500", "open-1000", "open-5000"):
        title = phase.replace("open-", "open loop at ") + ", a call"
        for r in t.phases.get(phase, [])[-1:]:
            if "generator_late_ms" in r:
                title += f" (sent late p99 {r['generator_late_ms']['p99']:.1f})"
        t.times(title, phase, "call_ms")


def print_e2e(t):
    print("End to end, no-op tasks on 4 in-process workers")
    for phase, title in (("e2e-single", "single submits, 512 in flight"), ("e2e-batch", "batches of 500, 4 in flight")):
        rate = t.median(phase, "tasks_per_s")
        if rate is not None:
            t.rate(title, phase, "tasks_per_s", f"goal {GOAL_E2E:,}: {verdict(rate >= GOAL_E2E)}")
    t.rate("queued first, then drained", "e2e-fill", "drain_per_s")
    for phase in ("e2e-single", "e2e-batch", "e2e-fill"):
        for r in t.phases.get(phase, [])[-1:]:
            if "submitted" in r:
                print(f"  {phase}: {r['submitted']:,} submitted, {r['recorded_once']:,} recorded once, {r['dispatched_again']:,} dispatched again")


def print_latency(t):
    if "latency" not in t.phases:
        return
    print("Idle system, one task at a time")
    h = t.phases["latency"][-1].get("submit_to_receipt_ms", {"p50": 1e9})
    base = t.median("idle-insert-1", "rows_per_s")
    beside = f"; {h['p50'] * base / 1000:.1f} times one commit just before ({1000 / base:.2f} ms)" if base else ""
    t.times("submit to the worker's receipt", "latency", "submit_to_receipt_ms",
            f"goal p50 {GOAL_RECEIPT_MS:.0f}: {verdict(h['p50'] <= GOAL_RECEIPT_MS)}{beside}")
    t.times("submit to its reply", "latency", "submit_to_reply_ms")
    t.times("submit to COMPLETED seen by GetTask(wait)", "latency", "submit_to_end_seen_ms")


def print_cost(t):
    print("CPU for 100,000 tasks and memory (postgres: PSS of all its processes)")
    for phase in ("submit-1", "submit-64", "submit-batch-500", "e2e-single", "e2e-batch", "e2e-fill", "soak"):
        t.cost(phase, phase)
    for r in t.phases.get("sessions", [])[-1:]:
        if "sessions" in r:
            print(f"  {r['sessions']:.0f} idle sessions: reinsd {r['reinsd_kib_per_session']:.1f} KiB each, {r['reinsd_cpu_percent']:.1f} % of a core "
                  f"at {r['heartbeats_per_s']:.0f} heartbeats/s; redis {r['redis_cpu_percent']:.1f} %, postgres {r['postgres_cpu_percent']:.1f} %")
    for r in t.phases.get("soak", [])[-1:]:
        if "rss_end_mib" in r:
            print(f"  soak of {r['submitted']:,} tasks at {r['tasks_per_s']:,.0f}/s: RSS {r['rss_warm_mib']:.1f} MiB at half, "
                  f"{r['rss_end_mib']:.1f} at the end; slope {r['rss_slope_mib_per_100k']:+.2f} MiB per 100,000 tasks")


BESIDE = (
    ("1 at a time", "submit-1", "submits_per_s"),
    ("64 in flight, 1 connection", "submit-64", "submits_per_s"),
    ("64 in flight, 16 connections", "submit-64-c16", "submits_per_s"),
    ("batches of 500, 4 in flight", "submit-batch-500", "submits_per_s"),
    ("end to end, single submits", "e2e-single", "tasks_per_s"),
    ("end to end, batches of 500", "e2e-batch", "tasks_per_s"),
    ("queued first, then drained", "e2e-fill", "drain_per_s"),
)
BESIDE_MS = (
    ("submit to the worker's receipt, p50 / p99", "submit_to_receipt_ms"),
    ("submit to its reply, p50 / p99", "submit_to_reply_ms"),
    ("submit to COMPLETED seen, p50 / p99", "submit_to_end_seen_ms"),
)


def print_embedded(t):
    """SQLite and memory beside Postgres and Redis, same machine, same run."""
    if not any(phase.startswith(EMBEDDED) for phase in t.phases):
        return
    print(f"{'The embedded default beside the cluster':<48}{'SQLite, memory':>18}{'Postgres, Redis':>20}")

    def row(title, embedded, cluster, unit):
        print(f"  {title:<46}{(embedded or '-') + unit:>18}{(cluster or '-') + unit:>20}")

    for title, phase, key in BESIDE:
        both = [t.median(name, key) for name in (EMBEDDED + phase, phase)]
        if any(both):
            row(title, *(f"{rate:,.0f}" if rate else None for rate in both), " /s")
    for title, key in BESIDE_MS:
        both = [([r[key] for r in t.phases.get(name, []) if key in r] or [None])[-1] for name in (EMBEDDED + "latency", "latency")]
        if any(both):
            row(title, *(f"{h['p50']:.2f} / {h['p99']:.2f}" if h else None for h in both), " ms")
    for phase in ("submit-64", "e2e-single"):
        t.cost(f"cost, {phase}", EMBEDDED + phase)


def main():
    t = Table(load(sys.argv[1]))
    for part in (print_limits, print_submit, print_e2e, print_latency, print_cost, print_embedded):
        part(t)
    wrong = [(phase, text) for phase, runs in t.phases.items() for r in runs for text in r.get("wrong", [])]
    for phase, text in wrong:
        print(f"WRONG in {phase}: {text}")


main()
