"""Seeds through the simulator: ``python -m raftline.testing.sim --seeds 200``.

One seed is one run: a cluster boots from empty directories, clients work while faults strike, the
faults end, everything heals, all replicas are read, and the checker gives its verdict. The digest
of a run covers every event of it: the same seed has the same digest everywhere.
"""

import argparse
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from raftline.config.settings import Settings
from raftline.machines.delivery.selection import STRICT, WEIGHTED
from raftline.model.errors import RaftlineError, TopicExists
from raftline.testing.checker import RECOVERY_MS_MAX, Verdict, check
from raftline.testing.clean_seeds import CleanSeed, CleanSeeds
from raftline.testing.cluster import SimCluster, SimError, production_node, sim_settings
from raftline.testing.faults import FAULTS, Nemesis, Strike
from raftline.testing.history import Final, History, Op, ReplicaLog
from raftline.testing.hosts import Build
from raftline.testing.pipeline_run import TOPIC as PIPELINE_TOPIC
from raftline.testing.pipeline_run import PipelineRun
from raftline.testing.queue_run import QueueRun
from raftline.testing.queue_workload import QueueSettings
from raftline.testing.tape import Tape
from raftline.testing.workload import Workload, WorkloadSettings
from raftline.testing.world import Runaway

BOOT_MS = 10_000.0
HEAL_MS = 15_000.0  # the last part of a run is without faults
SETTLE_MS = 20_000.0  # replicas must be level this long after the last write
LEAVE_MS = 30_000.0  # a node that was told to leave is gone this long after the faults
PROBE_MS = 200.0
CALM_AFTER_MS = 3_000.0  # the end of the faults is noticed by then
EVENTS_MAX = 3_000_000  # a run has a tenth of this
MODES = {6: WEIGHTED, 7: STRICT}  # how lanes are served, by the seed; others: by age
MODES_EVERY = 8
UNREAD = 141  # exit code if nobody read to the end, as a shell has it for SIGPIPE
ALL_CLASSES_FROM = 50  # seeds in a call that must see every class of fault


class Plan(msgspec.Struct, frozen=True):
    """How big a run is."""

    seconds: float = 60.0
    operations: int = 1_700  # calls to the log
    queue_operations: int = 250  # what clients of the queue begin; settles come on top
    nodes: int = 3
    workload: WorkloadSettings = WorkloadSettings()
    queue: QueueSettings = QueueSettings()
    pipeline: int = 4  # jobs stage, publish and lease in every so manieth seed; 0: in none
    faults: tuple[str, ...] = ()  # only these classes; none named: all of them


class Report(msgspec.Struct, frozen=True):
    """What came of one seed."""

    seed: int
    digest: str
    verdict: Verdict
    faults: dict[str, int]
    sim_ms: float
    events: int
    lines: tuple[str, ...] = ()  # faults and the last log lines, if a promise was broken


class Simulation:
    """One run, step by step."""

    def __init__(self, seed: int, plan: Plan | None = None, build: Build | None = None) -> None:
        self.seed = seed
        self.plan = plan or Plan()
        tape = Tape()
        self.cluster = SimCluster(
            self.plan.nodes,
            seed,
            settings=_settings(),
            build=tape.record(build or production_node),
        )
        self.history = History()
        rng = self.cluster.rng
        self.workload = Workload(
            self.cluster, self.cluster.world.fork_rng(), self.history, self.plan.workload
        )
        self.nemesis = Nemesis(
            self.cluster, self.workload, self.cluster.world.fork_rng(), _classes(self.plan)
        )
        self.queue: QueueRun | None = None
        if self.plan.queue_operations and build is None:  # what is built instead has no queue
            mode = self.plan.queue.mode or MODES.get(seed % MODES_EVERY, "")
            self.queue = QueueRun(
                self.cluster,
                self.history,
                self.cluster.world.fork_rng(),
                tape,
                msgspec.structs.replace(self.plan.queue, mode=mode),
            )
        self.pipeline: PipelineRun | None = None
        if self.plan.pipeline and build is None and seed % self.plan.pipeline == 0:
            self.pipeline = PipelineRun(self.cluster, self.history, self.cluster.world.fork_rng())
        self.cluster.world.events_max = EVENTS_MAX
        self.final = Final(boot_ms=-1.0)
        self._rng = rng

    def run(self) -> Report:
        """Boot, work under faults, heal, read everything, judge."""
        try:
            if self.boot():
                self._work()
        except Runaway as error:
            return self._judge((str(error),))
        return self.finish()

    def finish(self) -> Report:
        """Heal, wait, read every replica, judge. For scripted runs too."""
        try:
            if self.final.boot_ms >= 0:
                self.nemesis.heal()
                if self.queue is not None:
                    self.queue.calm()
                self._recover()
                self._calm()
                self._end_calls()
                if self.queue is not None:
                    self.queue.drain()
                if self.pipeline is not None:
                    self.pipeline.drain()
                self._settle()
                self._read_all()
                if self.queue is not None:
                    self._read_queue(self.queue)
                if self.pipeline is not None:
                    self._read_queue(self.pipeline)
        except Runaway as error:
            return self._judge((str(error),))
        return self._judge(())

    def _judge(self, bugs: tuple[str, ...]) -> Report:
        self.final.bugs = (*self.cluster.bugs, *bugs)
        verdict = check(self.history, self.final)
        if self.queue is not None:
            clocks = [name for name in self.nemesis.counts if name.startswith("clock")]
            self.queue.final.clocks_are_true = not clocks
            found = (*verdict.violations, *self.queue.check())
            verdict = Verdict(found, {**verdict.counts, **self.queue.history.counts()})
        if self.pipeline is not None:
            found = (*verdict.violations, *self.pipeline.check())
            verdict = Verdict(found, {**verdict.counts, **self.pipeline.counts()})
        lines: Sequence[str] = ()
        if not verdict.clean:
            lines = (*self.nemesis.lines, *self.cluster.log_lines(60))
        world = self.cluster.world
        return Report(
            self.seed,
            world.digest(),
            verdict,
            dict(sorted(self.nemesis.counts.items())),
            world.now_ms,
            world.events,
            tuple(lines),
        )

    def boot(self) -> bool:
        """Start every host on an empty directory, not all at once."""
        cluster = self.cluster
        for host in cluster.hosts.values():
            cluster.world.after(
                self._rng.random() * 300.0, lambda host=host: self.nemesis.start(host)
            )
        if self._rng.randrange(3) == 0:
            self.nemesis.crash_at_boot(self._rng.random() * 600.0)
        ready = cluster.world.run_until(
            lambda: all(cluster.is_ready(name) for name in cluster.hosts), BOOT_MS
        )
        if ready:
            plan = self.plan.workload
            ready = self._create(lambda: cluster.create_topic(plan.topic, plan.partitions))
        if ready and self.queue is not None:
            ready = self._create(self.queue.create)
        if ready and self.pipeline is not None:
            ready = self._create(self.pipeline.create)
        self.final.boot_ms = cluster.now_ms if ready else -1.0
        return ready

    def _create(self, create: Callable[[], object]) -> bool:
        """Create a topic, and ask again if a process ended meanwhile, as a client would.

        The call that got no answer may have created it. With no process ended a refusal counts.
        """
        cluster = self.cluster
        is_again = False
        while True:
            ended = sum(len(host.ends) for host in cluster.hosts.values())
            try:
                create()
            except TopicExists:
                return is_again
            except (RaftlineError, SimError):
                if sum(len(host.ends) for host in cluster.hosts.values()) == ended:
                    return False
            else:
                return True
            is_again = True
            if not cluster.world.run_until(
                lambda: all(cluster.is_ready(name) for name in cluster.hosts), BOOT_MS
            ):
                return False

    def _work(self) -> None:
        now_ms = self.cluster.now_ms
        end_ms = max(now_ms + 1_000.0, self.plan.seconds * 1_000.0 - HEAL_MS)
        self.workload.schedule(self.plan.operations, now_ms, end_ms)
        if self.queue is not None:
            self.queue.workload.schedule(self.plan.queue_operations, now_ms, end_ms)
        if self.pipeline is not None:
            self.pipeline.start()
        self.nemesis.schedule(now_ms + 500.0, end_ms - 2_000.0)
        self.cluster.world.run_to(end_ms)

    def _recover(self) -> None:
        """Write to every partition until each takes it; note how long that took."""
        cluster, world = self.cluster, self.cluster.world
        healed_ms = world.now_ms
        waiting = list(range(self.plan.workload.partitions))

        def probe() -> None:
            for partition in list(waiting):
                hosts = [h for h in cluster.hosts.values() if h.running]
                if hosts:
                    host = hosts[self._rng.randrange(len(hosts))]
                    self.workload.append(host, self.plan.workload.topic, partition, done=took)
            if waiting:
                world.after(PROBE_MS, probe)

        def took(op: Op) -> None:
            if op.outcome == "ok" and op.partition in waiting:
                waiting.remove(op.partition)

        probe()
        done = world.run_until(lambda: not waiting, healed_ms + RECOVERY_MS_MAX)
        self.final.recovery_ms = world.now_ms - healed_ms if done else -1.0
        waiting.clear()
        world.run_until(
            lambda: all(cluster.is_ready(n) for n in cluster.hosts), healed_ms + RECOVERY_MS_MAX
        )
        world.run_until(lambda: not self.nemesis.leaving, healed_ms + LEAVE_MS)
        # Free space, clocks and who is alive are looked at once a second or so.
        world.run_to(max(world.now_ms, healed_ms + CALM_AFTER_MS))

    def _calm(self) -> None:
        """With all well, any node takes any call, the first publish to a new topic too (P9)."""
        world = self.cluster.world
        if self.final.recovery_ms < 0:
            return
        for i, host in enumerate(self.cluster.hosts.values()):
            topic = f"calm-{i}"
            self.workload.topics.append(topic)
            self.workload.append(host, topic, 0, calm=True)
            for partition in range(self.plan.workload.partitions):
                self.workload.append(host, self.plan.workload.topic, partition, calm=True)
            world.run_to(world.now_ms + 100.0)

    def _end_calls(self) -> None:
        """Run to the planned end, and until every call has had its time."""
        world = self.cluster.world
        world.run_to(max(world.now_ms, self.plan.seconds * 1_000.0))
        limit_ms = world.now_ms + self.plan.workload.timeout_ms + 1_000.0
        queue = self.queue
        world.run_until(
            lambda: not self.workload.open and (queue is None or not queue.workload.open), limit_ms
        )

    def _settle(self) -> None:
        """Give replicas time to become level, then say what still differs."""
        limit_ms = self.cluster.now_ms + SETTLE_MS
        while True:
            self.final.verify = self._verify()
            self.final.misplaced = self._misplaced()
            is_settled = not self.final.verify and not self.final.misplaced
            if is_settled or self.cluster.now_ms >= limit_ms:
                break
            self.cluster.advance("500ms")
        out: dict[str, None] = {}
        for host in self.cluster.hosts.values():
            if host.node is not None:
                out.update(dict.fromkeys(host.node.status().quarantined))
        self.final.out_of_service = tuple(out)

    def _misplaced(self) -> str:
        """Say which node stays, and which replicas are not where the catalog wants them."""
        found = [f"{self.nemesis.leaving} stays"] if self.nemesis.leaving else []
        found += [
            f"{topic.name}/{row.partition} is {row.state} on {host.name} (leader {row.leader}, "
            f"replicas {row.replicas}, learners {row.learners})"
            for host in self.cluster.hosts.values()
            if host.node is not None
            for topic in host.node.catalog().topics
            for row in topic.partitions
            if row.state != "ok"
        ]
        return "; ".join(found)

    def _verify(self) -> str:
        try:
            ready = [name for name in self.cluster.hosts if self.cluster.is_ready(name)]
            verified = self.cluster.verify(via=ready[0] if ready else "")
        except (RaftlineError, SimError) as error:
            return f"verify failed: {error}"
        return "; ".join(
            f"{shard.name}: "
            + ", ".join(
                f"node {r.node} [{r.log_start}, {r.commit_end}) log {r.log[:12]} "
                f"state {r.state[:12]} {r.error}".rstrip()
                for r in shard.replicas
            )
            for shard in verified.shards
            if not shard.identical
        )

    def _read_all(self) -> None:
        """Read every partition on every replica."""
        unread: list[str] = []
        for view in self._catalog_topics():
            topic, partition, names = view
            if topic.startswith((self.plan.queue.topic, PIPELINE_TOPIC)):
                continue  # batches of released messages are built by nodes: read one by one
            logs: list[ReplicaLog] = []
            for name in names:
                try:
                    logs.append(self._read_replica(topic, partition, name))
                except (RaftlineError, SimError) as error:
                    unread.append(f"{topic}/{partition} on {name}: {error}")
            if logs:
                self.final.replicas[f"{topic}/{partition}"] = tuple(logs)
        self.final.unread = tuple(unread)

    def _read_queue(self, run: QueueRun | PipelineRun) -> None:
        try:
            run.read()
        except (RaftlineError, SimError) as error:
            self.final.unread = (*self.final.unread, f"{type(run).__name__}: {error}")

    def _catalog_topics(self) -> list[tuple[str, int, list[str]]]:
        views = [h.node.catalog() for h in self.cluster.hosts.values() if h.node is not None]
        view = max(views, key=lambda view: view.version)
        names = {row.id: row.name for row in view.nodes}
        return [
            (topic.name, row.partition, [names[n] for n in row.replicas if n in names])
            for topic in view.topics
            for row in topic.partitions
        ]

    def _read_replica(self, topic: str, partition: int, name: str) -> ReplicaLog:
        replies = list(self.cluster.replies(topic, partition, via=name, any_replica=True))
        batches = b"".join(reply.batches for reply in replies)
        return ReplicaLog(
            name,
            replies[-1].log_start,
            replies[-1].commit_end,
            self.history.runs_of(batches),
        )


def _settings() -> Settings:
    """Return small files, and one partition for topics that come with their first publish."""
    base = sim_settings()
    return msgspec.structs.replace(base, topics=msgspec.structs.replace(base.topics, partitions=1))


def _classes(plan: Plan) -> dict[str, Strike]:
    unknown = [name for name in plan.faults if name not in FAULTS]
    if unknown:
        raise SimError(f"no class of fault is called {unknown[0]!r}; there are {', '.join(FAULTS)}")
    return {name: FAULTS[name] for name in plan.faults or FAULTS}


def run_seed(seed: int, plan: Plan | None = None, build: Build | None = None) -> Report:
    """Run one seed."""
    return Simulation(seed, plan, build).run()


def run_seeds(
    seeds: Iterable[int], plan: Plan, jobs: int, told: Callable[[Report], None]
) -> list[Report]:
    """Run seeds in ``jobs`` processes; ``told`` hears of each as it ends."""
    tasks = [(seed, plan) for seed in seeds]
    reports: list[Report] = []
    if jobs <= 1:
        for task in tasks:
            reports.append(_run_task(task))
            told(reports[-1])
        return reports
    with multiprocessing.get_context("spawn").Pool(jobs, _leave_interrupts) as pool:
        for report in pool.imap_unordered(_run_task, tasks):
            reports.append(report)
            told(report)
    return sorted(reports, key=lambda report: report.seed)


def _leave_interrupts() -> None:
    """Ctrl-C reaches the whole process group; the one that began the run ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_task(task: tuple[int, Plan]) -> Report:
    return run_seed(*task)


def count_faults(reports: Iterable[Report]) -> dict[str, int]:
    """Return how often each class of fault struck; every class has a row."""
    counts = dict.fromkeys(FAULTS, 0)
    for report in reports:
        for name, count in report.faults.items():
            counts[name] = counts.get(name, 0) + count
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds as the command line says; return the exit code."""
    code = UNREAD
    try:
        code = _main(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader had enough (… | head)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _main(arguments: Sequence[str] | None) -> int:
    options = _options(arguments)
    first = options.seed if options.seed is not None else options.first
    seeds = range(first, first + (1 if options.seed is not None else options.seeds))
    faults = tuple(name.strip() for name in options.faults.split(",") if name.strip())
    plan = Plan(
        seconds=options.seconds,
        operations=options.operations,
        queue_operations=options.queue,
        faults=faults,
    )
    say = sys.stdout.write

    def told(report: Report) -> None:
        state = "ok" if report.verdict.clean else "FAILED"
        say(
            f"seed {report.seed} {state} digest {report.digest} "
            f"faults {sum(report.faults.values())} events {report.events}\n"
        )
        if options.verbose or (not report.verdict.clean and options.seed is not None):
            say("\n".join([*report.lines, str(report.verdict), ""]))
        sys.stdout.flush()

    try:
        book = CleanSeeds(Path(options.resume), plan) if options.resume else None
    except OSError as error:
        say(f"{options.resume}: {error.strerror}; name a file that can be written\n")
        return 2
    kept = _kept(book, seeds)
    if kept:
        say(f"{len(kept)} seeds were clean before ({options.resume})\n")

    ran = 0

    def ended(report: Report) -> None:
        nonlocal ran
        ran += 1
        if book is not None and report.verdict.clean:  # first: what was told is kept
            book.note(
                CleanSeed(report.seed, report.digest, report.faults, report.sim_ms, report.events)
            )
        told(report)

    known = {report.seed for report in kept}
    left = [seed for seed in seeds if seed not in known]
    try:
        reports = kept + run_seeds(left, plan, options.jobs, ended)
    except KeyboardInterrupt:
        where = f"; the clean ones are in {options.resume}" if options.resume else ""
        say(f"stopped with {len(left) - ran} of {len(seeds)} seeds left{where}\n")
        return 130
    return _sum_up(reports, faults or tuple(FAULTS), say)


def _kept(book: CleanSeeds | None, seeds: range) -> list[Report]:
    """Return the seeds that need not run again."""
    if book is None:
        return []
    return [
        Report(seed, clean.digest, Verdict((), {}), clean.faults, clean.sim_ms, clean.events)
        for seed, clean in book.done.items()
        if seed in seeds
    ]


def _sum_up(reports: list[Report], classes: tuple[str, ...], say: Callable[[str], object]) -> int:
    counts = {name: count for name, count in count_faults(reports).items() if name in classes}
    say("faults by class:\n")
    for name, count in counts.items():
        say(f"  {count:6} {name}\n")
    missing = [name for name, count in counts.items() if not count]
    failed = [report for report in reports if not report.verdict.clean]
    say(f"{len(reports) - len(failed)} seeds clean, {len(failed)} failed\n")
    if len(reports) >= ALL_CLASSES_FROM and missing:
        say(f"never occurred: {', '.join(missing)}\n")
    for report in failed:
        say(f"SEED {report.seed}: {report.verdict.violations[0]}\n")
    return 1 if failed or (len(reports) >= ALL_CLASSES_FROM and missing) else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m raftline.testing.sim", description="Run seeds through the simulator."
    )
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, default=None, help="only this one, with its story")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=60.0, help="simulated seconds per seed")
    parser.add_argument("--operations", type=int, default=1_700, help="calls to the log per seed")
    parser.add_argument("--queue", type=int, default=250, help="calls to the queue, 0: none")
    parser.add_argument("--faults", default="", help="only these classes, by comma")
    parser.add_argument(
        "--resume", default="", metavar="FILE",
        help="keep clean seeds in FILE, and go on from what it says of this very code",
    )  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="tell the story of each seed")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    for _stop in (signal.SIGINT, signal.SIGTERM):  # a shell may have had it ignored (nohup … &)
        signal.signal(_stop, signal.default_int_handler)
    sys.exit(main())
