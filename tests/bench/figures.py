# SPDX-License-Identifier: Apache-2.0
"""What is measured. Each function of ALL takes a scratch directory and yields Results."""

import contextlib
import dataclasses
import re
import shutil
import subprocess
import sys
import threading
import time

import drive_mounts
import drivers
import stock_crowd
import stock_guest
import virtual_machine
from churn import Churn
from crowd import BUILD, PER_SANDBOX, PROGRAMS, VOLUMES, Crowd, volume_path

# Of tests/e2e, which drivers has put on the path.
from grpc_client import missing
from kata_guest import missing_parts

SIZES = (128, 4000)
RUNS = 3
ROUNDS = 50  # of growths per run; eight devices grow in each
SHELL_ROUNDS = 20
FILES = 400  # written per run
TOGETHER, TOGETHER_ROUNDS, MANY_HANG = 64, 20, 16
IDLE_SECONDS = 60
POLL_SECONDS = 300  # guest.stats_seconds
CALLGRIND_ROUNDS = 4
PODS, PODS_PER_SECOND = 600, 10
STAGES = ((1, 400), (16, 25))  # clients, calls of each per run
STATS = 400
STARTS = 1000
STOCK_SANDBOXES, STOCK_ROUNDS = 50, 5


@dataclasses.dataclass
class Result:
    """One figure; a run is a list of samples in the unit."""

    figure: str
    unit: str
    runs: list
    reference: str | None = None
    reference_runs: list | None = None
    aim: float | None = None
    aim_on: str | None = None


@contextlib.contextmanager
def running(scratch, volumes, kind=Crowd, **options):
    """A crowd whose daemon has started and has nothing left to do."""
    directory = scratch / f"crowd-{volumes}"
    directory.mkdir()
    try:
        with kind(directory, volumes, **options) as crowd:
            crowd.start()
            crowd.wait_settled()
            yield crowd
    finally:
        shutil.rmtree(directory)


def microseconds(samples):
    return [sample / 1000 for sample in samples]


def milliseconds(samples):
    return [sample / 1e6 for sample in samples]


# -- latency

def growth(crowd, title):
    runs = [crowd.grow(ROUNDS) for _ in range(RUNS)]
    told = {who: [microseconds(told for told, _ in run[who]) for run in runs] for who in runs[0]}
    return Result(f"uevent to block_resize, {title}", "us", told["crustd"],
                  "the same steps by hand", told["by hand"], 1000, "p99")


def metadata(crowd, title):
    runs = [crowd.write_metadata(FILES) for _ in range(RUNS)]
    return Result(f"metadata closed to committed, {title}", "us",
                  [microseconds(run[0]) for run in runs], "inotify, read, commit by hand",
                  [microseconds(run[1]) for run in runs], 1000, "p99")


def latency(scratch, **options):
    flushes = ", flushes delayed by 30 ms" if options else ""
    for volumes in SIZES:
        with running(scratch, volumes, **options) as crowd:
            yield growth(crowd, f"{volumes} volumes{flushes}")
            yield metadata(crowd, f"{volumes} volumes{flushes}")


def shell_loop(scratch):
    """Compared with what people often write instead: udevadm monitor, blockdev and socat in a loop."""
    missing = [program for program in ("udevadm", "socat") if not shutil.which(program)]
    if missing:
        print(f"skipped, needs {', '.join(missing)}: shell-loop", file=sys.stderr)
        return
    with running(scratch, SIZES[0], by_hand=False, shell=True) as crowd:
        runs = [crowd.grow(SHELL_ROUNDS) for _ in range(RUNS)]
    by_crustd, by_shell = ([microseconds(told for told, _ in run[who]) for run in runs]
                           for who in ("crustd", "by a shell loop"))
    yield Result(f"uevent to block_resize, {SIZES[0]} volumes, beside a shell loop", "us", by_crustd,
                 "a shell loop", by_shell, 1, "ratio")
    yield Result("uevent to block_resize, that shell loop", "us", by_shell)


def slow_disk(scratch):
    return latency(scratch, preload="slow_disk.so")


def real_vm(scratch):
    with contextlib.ExitStack() as stack:
        by_crustd, by_hand = virtual_machine.measure(scratch, stack)
    yield Result("host growth to guest grown, real VM", "ms", by_crustd,
                 "the same steps by hand, already connected", by_hand, 1.25, "ratio")


def helper(scratch):
    """The same, in a guest that has nothing of ours: there a helper grows the file system."""
    if missing_parts():
        print(f"skipped, needs {', '.join(missing_parts())}: helper", file=sys.stderr)
        return
    with contextlib.ExitStack() as stack:
        ways = stock_guest.measure(scratch, stack)

    def each(moment):
        return [[[getattr(times, moment) for times in run] for run in runs] for runs in ways]

    hand = "the same exchange by hand, already connected"
    companion, by_helper, by_hand = each("grown")
    yield Result("host growth to guest grown by a helper, real VM", "ms", by_helper, hand, by_hand, 1.25, "ratio")
    yield Result("host growth to guest grown by the companion, same VM", "ms", companion, "by a helper", by_helper)
    _, by_helper, by_hand = each("ended")
    yield Result("host growth to helper removed, real VM", "ms", by_helper, hand, by_hand, 1.25, "ratio")
    for title, moment in (("host growth to CreateContainer", "asked"), ("helper started to its report", "program")):
        _, by_helper, by_hand = each(moment)
        yield Result(f"{title}, real VM", "ms", by_helper, hand, by_hand)


def drives(scratch):
    """A disk into a running VM and out of it, and where the time of that goes."""
    if missing():
        print(f"skipped, needs {missing()}: drives", file=sys.stderr)
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(drivers.Calls(scratch))  # makes the stubs
        ways = drive_mounts.measure(scratch, stack)
    for title, moment, aim in (
            ("AttachDrive until mounted", "attached", 2.0), ("AttachDrive to MountDrive in the guest", "asked", None),
            ("MountDrive in the guest", "mounting", None), ("DetachDrive until free", "detached", None)):
        by_crustd, by_hand = ([[getattr(times, moment) for times in run] for run in runs] for runs in ways)
        yield Result(f"{title}, real VM", "ms", by_crustd, "the same steps by hand, already connected", by_hand,
                     aim, aim and "ratio")


def helper_crowd(scratch):
    """Many stock sandboxes at once, with the default number of helpers and with more."""
    with stock_crowd.StockCrowd(scratch, STOCK_SANDBOXES) as crowd:
        for helpers in (2, 8):
            crowd.configure(guest__helpers=helpers)
            before = crowd.rss_kib()
            rounds = [(crowd.grow(), crowd.grow_by_hand(helpers)) for _ in range(STOCK_ROUNDS)]
            title = f"{STOCK_SANDBOXES} sandboxes at once, guest.helpers = {helpers}"
            yield Result(f"until the last is in sync, {title}", "ms",
                         [[measured.seconds * 1000] for measured, _ in rounds],
                         f"by hand, {helpers} at a time", [[seconds * 1000] for _, seconds in rounds],
                         1.25, "ratio")
            yield Result(f"helpers that ran together, {title}", "helpers",
                         [[measured.helpers] for measured, _ in rounds], aim=helpers, aim_on="p50")
            yield Result(f"largest RssAnon meanwhile, {title}", "kB",
                         [[measured.rss_kib] for measured, _ in rounds], "before", [[before]])


def hung(scratch):
    """How much later the others' guests have grown if one VMM does not answer, or a quarter of them."""
    with running(scratch, TOGETHER * PER_SANDBOX, growing=TOGETHER, by_hand=False,
                 settings={"resize.call_timeout_seconds": 600}) as crowd:
        free, one, many = [], [], []
        for hanging, runs in (0, free), (1, one), (MANY_HANG, many):
            for number in range(hanging):
                crowd.hang(number)
            runs += [milliseconds(crowd.grow_together()) for _ in range(TOGETHER_ROUNDS)]
    yield Result(f"uevent to guest grown, {TOGETHER} at once, one VMM hangs", "ms", one,
                 "none hangs", free, 1.25, "ratio")
    for title, runs in ("one VMM hangs", one), (f"{MANY_HANG} VMMs hang", many):
        yield Result(f"until the last of {TOGETHER} has grown, {title}", "ms", [[max(run)] for run in runs],
                     "none hangs", [[max(run)] for run in free])


# -- start

def bare_scan(crowd):
    """Seconds of a program that only reads the same files."""
    roots = [crowd.node.root / name for name in (VOLUMES, "run/vc/sbs", "run/vc/vm")]
    started = time.monotonic()
    subprocess.run([PROGRAMS / "scan", *roots], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - started


def starts(scratch, **options):
    """Milliseconds of first starts, restarts and bare scans."""
    first, again, scans = [], [], []
    with running(scratch, 4000, by_hand=False, **options) as crowd:
        for _ in range(5):
            crowd.stop()
            crowd.forget()
            first.append([crowd.start() * 1000])
            crowd.wait_settled()
            crowd.stop()
            again.append([crowd.start() * 1000])
            scans.append([bare_scan(crowd) * 1000])
    return first, again, scans


def cold_start(scratch):
    for title, bound in (("4000 volumes", False), ("4000 volumes in 1000 sandboxes", True)):
        first, again, scans = starts(scratch, bound=bound)
        yield Result(f"first start, {title}", "ms", first, "bare scan", scans, 2, "ratio")
        yield Result(f"restart, {title}", "ms", again, "bare scan", scans, 2, "ratio")


# -- cost

def memory(scratch):
    for volumes, aim in ((0, None), (128, 3000), (4000, 8000)):
        with running(scratch, volumes, by_hand=False) as crowd:
            yield Result(f"RssAnon, {volumes} volumes", "kB", [[crowd.status("RssAnon")]],
                         aim=aim, aim_on=aim and "p50")
            if crowd.growing:
                crowd.grow(10)
                yield Result(f"RssAnon, {volumes} volumes, after {10 * crowd.growing} growths",
                             "kB", [[crowd.status("RssAnon")]], aim=aim, aim_on="p50")


def idle(scratch):
    """Without polls of the guests, and with those of the default."""
    for volumes in SIZES:
        for seconds, words in ((0, ""), (POLL_SECONDS, ", guests polled")):
            with running(scratch, volumes, by_hand=False,
                         settings={"guest.stats_seconds": seconds}) as crowd:
                time.sleep(5)  # what follows a start is over
                switches, cpu = crowd.status("voluntary_ctxt_switches"), crowd.cpu_seconds()
                time.sleep(IDLE_SECONDS)
                switches = crowd.status("voluntary_ctxt_switches") - switches
                cpu = crowd.cpu_seconds() - cpu
                yield Result(f"wake-ups per idle minute, {volumes} volumes{words}", "wake-ups",
                             [[switches * 60 / IDLE_SECONDS]])
                yield Result(f"processor time per idle minute, {volumes} volumes{words}", "ms",
                             [[cpu * 1000 * 60 / IDLE_SECONDS]])


def instructions_since_last(crowd, directory):
    """Has callgrind write down its counts and start over."""
    before = set(directory.glob("callgrind.*"))
    subprocess.run(["callgrind_control", "-d", str(crowd.pid)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    dump, = set(directory.glob("callgrind.*")) - before
    return int(re.search(r"^(?:totals|summary): (\d+)", dump.read_text(), re.MULTILINE)[1])


def instructions(scratch):
    """Events that cost more with more volumes would show here, and noise does not. Sweeps look at
    all volumes, and polls at their guests, which the idle minute's figure has; so there are none
    meanwhile."""
    counts = {}
    for volumes in SIZES:
        directory = scratch / f"callgrind-{volumes}"
        directory.mkdir()
        wrapper = ["valgrind", "--quiet", "--tool=callgrind",
                   f"--callgrind-out-file={directory}/callgrind"]
        with running(scratch, volumes, by_hand=False,
                     settings={"resize.sweep_seconds": 3600, "guest.stats_seconds": 0,
                               "cleanup.mode": "off"}) as crowd:
            crowd.restart(wrapper, "new_calls.so")  # the database is filled already
            crowd.grow(1, pause_us=100000)
            instructions_since_last(crowd, directory)
            crowd.grow(CALLGRIND_ROUNDS, pause_us=100000)
            events = CALLGRIND_ROUNDS * crowd.growing
            counts[volumes] = [[instructions_since_last(crowd, directory) / events]]
        few = counts[SIZES[0]]
        is_reference = volumes == SIZES[0]
        yield Result(f"instructions per growth, {volumes} volumes", "instructions",
                     counts[volumes], None if is_reference else f"{SIZES[0]} volumes",
                     None if is_reference else few, None if is_reference else 1.1,
                     None if is_reference else "ratio")


# -- churn

def churn(scratch):
    """1,000 sandboxes, of which ten a second go and as many come for a minute."""
    settings = {"history.max_rows": 10000}
    with running(scratch, 4000, kind=Churn, settings=settings) as crowd:
        quiet = microseconds(told for told, _ in crowd.grow(ROUNDS)["crustd"])
        held = [crowd.status("RssAnon"), crowd.descriptors]
        cpu = crowd.cpu_seconds()
        pods = threading.Thread(target=crowd.replace, args=(PODS, PODS_PER_SECOND))
        pods.start()
        busy = microseconds(told for told, _ in crowd.grow(ROUNDS * 5)["crustd"])
        pods.join()
        crowd.wait_settled()
        cpu = crowd.cpu_seconds() - cpu
        title = f"{PODS_PER_SECOND} pods a second"
        yield Result(f"uevent to block_resize, 4000 volumes, {title}", "us", [busy],
                     "the same while no pod comes or goes", [quiet])
        yield Result(f"processor time of a minute, 1000 sandboxes, {title}", "ms", [[cpu * 1000]])
        for name, unit, before, after in (
                ("RssAnon", "kB", held[0], crowd.status("RssAnon")),
                ("descriptors", "descriptors", held[1], crowd.descriptors)):
            yield Result(f"{name} after {PODS} pods", unit, [[after]], "before", [[before]])
        yield Result(f"database after {PODS} pods", "bytes", [[crowd.database_bytes]])


# -- drivers' calls

def stage_calls(scratch, calls):
    """By crustd and by the small server in turn; the files are on a tmpfs, the database on disk."""
    with running(scratch, 0) as crowd, calls.small_server(crowd.node.path("/run/small")) as small:
        sockets = crowd.node.path("/run/crustd/crust.sock"), small
        for clients, count in STAGES:
            held, rates, times = crowd.status("RssAnon"), ([], []), ([], [])
            with drivers.peak(lambda: crowd.status("RssAnon")) as peak:
                for _ in range(RUNS):
                    for socket, rate, of_each in zip(sockets, rates, times):
                        seconds, samples, paths = calls.stage(socket, clients, count)
                        rate.append([clients * count / seconds])
                        of_each.append(microseconds(samples))
                        if socket is not small:
                            calls.unstage(socket, paths)
            title = f"{clients} client{'s' * (clients > 1)}"
            yield Result(f"stage calls a second, {title}", "calls/s", rates[0],
                         "a small Python server, no database", rates[1])
            yield Result(f"stage call, {title}", "us", times[0],
                         "a small Python server, no database", times[1])
            yield Result(f"p99 of that small server, {title}", "us", times[1])
            yield Result(f"largest RssAnon meanwhile, {title}", "kB", [peak], "before", [[held]])


def stats_calls(scratch, calls):
    with running(scratch, SIZES[0], by_hand=False) as crowd, \
            calls.connect(crowd.node.path("/run/crustd/crust.sock")) as stub:
        agent, path = crowd.node.path("/run/agents/0.sock"), volume_path(0)
        by_crustd, bare = [], []
        for _ in range(RUNS):
            pairs = [(calls.stats(stub, path), drivers.bare_stats(agent, "/mnt"))
                     for _ in range(STATS)]
            by_crustd.append(microseconds(pair[0] for pair in pairs))
            bare.append(microseconds(pair[1] for pair in pairs))
        yield Result("stats by gRPC", "us", by_crustd, "a bare call to the agent", bare)


def driver_calls(scratch):
    if missing():
        print(f"skipped, needs {missing()}: driver-calls", file=sys.stderr)
        return
    with drivers.Calls(scratch) as calls:
        yield from stage_calls(scratch, calls)
        yield from stats_calls(scratch, calls)


# -- crust-qemu

def through_crust_qemu(scratch):
    """Between a shim and QEMU; with a program that does nothing in QEMU's place. In a /run of its own,
    because its directory must be in its place, and root's."""
    program, = BUILD.glob("crust-qemu-system-*")
    for name in ("true", "echo"):
        shutil.copy(f"/bin/{name}", scratch / name)
        shutil.copy(program, scratch / f"crust-{name}")
    # First checks that it adds a monitor here; otherwise something else would be measured.
    script = ("mount -t tmpfs -o mode=755 none /run && mkdir /run/crustd && mkdir -m 700 /run/crustd/qemu "
              f'&& {scratch}/crust-echo -name sandbox-a | grep -q -e -qmp && exec "$@"')
    arguments = ["-name", f"sandbox-{64 * 'a'},debug-threads=on", "-m", "2048M"]
    runs, bare = [], []
    for _ in range(RUNS):
        lines = subprocess.run(
            ["unshare", "-m", "sh", "-c", script, "sh", PROGRAMS / "starts", str(STARTS),
             scratch / "true", scratch / "crust-true", *arguments], check=True, capture_output=True, text=True)
        pairs = [tuple(map(int, line.split())) for line in lines.stdout.splitlines()]
        runs.append(microseconds(through - directly for directly, through in pairs))
        bare.append(microseconds(directly for directly, _ in pairs))
    yield Result("crust-qemu, added to a start", "us", runs, aim=2000, aim_on="p50")
    yield Result("the start of a program that does nothing", "us", bare)


ALL = {
    "latency": latency,
    "shell-loop": shell_loop,
    "slow-disk": slow_disk,
    "real-vm": real_vm,
    "helper": helper,
    "helper-crowd": helper_crowd,
    "drives": drives,
    "hung": hung,
    "cold-start": cold_start,
    "memory": memory,
    "idle": idle,
    "instructions": instructions,
    "churn": churn,
    "driver-calls": driver_calls,
    "crust-qemu": through_crust_qemu,
}
