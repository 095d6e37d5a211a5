"""The whole system on this machine: an emulator of AWS, the template's stack on it, its functions in processes, and the event
sources that call them. `Dev` is what the command, the demo and the integration tests use."""

from __future__ import annotations

import os
import queue
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar

from ringfence.errors import RingfenceError
from ringfence.local.deployment import Deployment, outputs_of, plan, wanted_of
from ringfence.local.embedded_redis import EmbeddedRedis
from ringfence.local.emulator import Emulator, Startable
from ringfence.local.endpoint import Endpoint, ensure_answering, other_endpoint, region_of
from ringfence.local.event_sources import SqsMapping
from ringfence.local.function_environment import environment_of, settings_of
from ringfence.local.horizon import horizon_variable
from ringfence.local.invocation import Outcome
from ringfence.local.pool import Function, Pool, Replaced
from ringfence.local.pool_sizes import QUEUE_PROCESSES, size_of
from ringfence.local.run_folder import make_run_folder
from ringfence.local.sources.failed_batches import FailedBatches
from ringfence.local.sources.http import HttpSource
from ringfence.local.sources.kinesis import KinesisSource
from ringfence.local.sources.pulse import Pulse
from ringfence.local.sources.schedule import ScheduleSource
from ringfence.local.sources.sqs import SqsSource
from ringfence.local.stack import Stack, create_stack, delete_stack
from ringfence.local.template import read_template

Auth = Literal["none", "api-key"]
Engine = Literal["sqs", "redis"]
Source = SqsSource | KinesisSource | ScheduleSource
Thing = TypeVar("Thing")

READY_SECONDS = 120.0
"""How long the functions may take to load. Seconds are usual; many at once on a loaded machine need more."""


class NotRunning(RingfenceError):
    """`ringfence dev` has not been started, or has ended."""


class Dev:
    """``with Dev(template=…) as dev:`` starts everything and ends it again, whatever happens.

    ``emulator`` is started unless ``endpoint_url`` (or, if both are None, the environment: see `other_endpoint`) names one that
    runs. ``workers`` is the number of processes of each function that takes from queues; ``processes`` (logical id → number)
    says it for any function, no more and no fewer. ``extra_env`` is added to the
    environment of every function, ``function_env`` to that of the functions it names; ``parameters`` are the template's.
    With ``queues="redis"`` the template's queues are on a Redis that is started too; whoever is to take from them finds them
    in `environment`. ``timers_every_seconds`` stands in for the schedules of the template; None keeps those. ``on_replaced`` is
    called for every process that ended by itself, ``tell`` with each step of the start.
    """

    def __init__(
        self,
        template: Path,
        *,
        emulator: Startable | None = None,
        endpoint_url: str | None = None,
        auth: Auth = "none",
        queues: Engine = "sqs",
        workers: int = QUEUE_PROCESSES,
        processes: Mapping[str, int] | None = None,
        extra_env: Mapping[str, str] | None = None,
        function_env: Mapping[str, Mapping[str, str]] | None = None,
        parameters: Mapping[str, str] | None = None,
        port: int = 0,
        timers_every_seconds: float | None = 1.0,
        run_folder: Path | None = None,
        on_replaced: Callable[[Replaced], None] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._template_path = Path(template).resolve()
        self._other = None if emulator is not None and endpoint_url is None else other_endpoint(endpoint_url, os.environ)
        self._kind: Startable = emulator or "ministack"
        self._auth = auth
        self._queues = queues
        self._workers = workers
        self._processes = dict(processes or {})
        self._extra_env = {**horizon_variable(timers_every_seconds), **(extra_env or {})}
        self._function_env = {name: dict(variables) for name, variables in (function_env or {}).items()}
        self._parameters = dict(parameters or {})
        self._port = port
        self._timers_every_seconds = timers_every_seconds
        self._on_replaced = on_replaced or (lambda _replaced: None)
        self._tell = tell or (lambda _text: None)
        self._given_run_folder = run_folder
        self._pulse = Pulse()
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._http: HttpSource | None = None
        self._emulator: Emulator | None = None
        self._redis: EmbeddedRedis | None = None
        self._stack: Stack | None = None
        self._deployment: Deployment | None = None
        self._pools: dict[str, Pool] = {}
        self._sources: list[Source] = []
        self._endpoint: Endpoint | None = self._other
        self.outputs: Mapping[str, str] = {}
        """The stack's outputs; those that would name the API's address on AWS name ``api_url``."""
        self.run_folder = Path()
        """Where this run keeps its logs."""

    # --- its life ------------------------------------------------------------------------------------------------------

    def start(self) -> Dev:
        """Start everything and wait until it answers. What was started is ended again if something fails.

        Raises `RingfenceError`: the port is taken, the emulator, the stack or a function does not start.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End everything. No process is left when it returns."""
        self._pulse.stop()
        if self._http is not None:
            self._http.stop()
        for pool in self._pools.values():
            pool.stop()
        if self._other is not None:
            self._join_sources()
            if self._stack is not None:
                delete_stack(self._other, self._stack)
        for server in (self._emulator, self._redis):
            if server is not None:
                server.stop()
        self._join_sources()

    def __enter__(self) -> Dev:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def wait(self) -> str:
        """Block until something that cannot be replaced ends by itself. Returns what it was."""
        while True:
            try:
                # With a timeout: a signal is only handled when the wait returns to Python, on some platforms.
                return self._ended.get(timeout=1.0)
            except queue.Empty:
                continue

    # --- what there is -------------------------------------------------------------------------------------------------

    @property
    def api_url(self) -> str:
        """The API's address on this machine."""
        return _there(self._http).url

    @property
    def endpoint(self) -> Endpoint:
        """The emulator, with clients for it."""
        return _there(self._endpoint)

    @property
    def endpoint_url(self) -> str:
        return self.endpoint.url

    @property
    def resources(self) -> Mapping[str, str]:
        """Logical id → physical id."""
        return _there(self._stack).resources

    @property
    def functions(self) -> list[str]:
        """The logical ids of the functions."""
        return list(self._pools)

    @property
    def logs(self) -> Path:
        """The folder with a ``<function>-<pid>.log`` for each process."""
        return self.run_folder / "logs"

    @property
    def jobs_folder(self) -> Path | None:
        """The code of the function that runs jobs (it has RINGFENCE_APP), where `ringfence worker` finds them too."""
        plans = _there(self._deployment).functions.values()
        return next((plan.folder for plan in plans if "RINGFENCE_APP" in plan.environment), None)

    def pids(self, function: str) -> list[int]:
        """The processes of a function that live and are ready."""
        return self._pool(function).pids()

    def environment(self, function: str | None = None) -> dict[str, str]:
        """The variables with which `ringfence.runtime`, in the caller's process, is what it is in this function.

        Without a name, those of all functions together, as the last of them in the template has them.
        """
        plans = _there(self._deployment).functions
        variables: dict[str, str] = {}
        for name in plans if function is None else (self._pool(function).function.name,):
            variables |= {**settings_of(plans[name], self.endpoint, self._auth), **self._extra_of(name)}
        return variables

    def restart(self, function: str, extra_env: Mapping[str, str] | None = None) -> None:
        """Replace all processes of a function, ``extra_env`` added to their environment (and not to later restarts')."""
        self._pool(function).restart(extra_env or {}, READY_SECONDS)

    def invoke(self, function: str, event: bytes) -> Outcome:
        """Call a function as an event source would."""
        return self._pool(function).invoke(event)

    # --- starting ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._http = HttpSource(self._port, self._pulse)
        if self._other is not None:
            ensure_answering(self._other)
        self.run_folder = self._given_run_folder or make_run_folder(self._template_path.parent)
        self.logs.mkdir(parents=True, exist_ok=True)
        if self._endpoint is None:
            log = self.run_folder / f"{self._kind}.log"
            self._emulator = Emulator(self._kind, region_of(os.environ), log, self._tell, self._ended.put)
            self._tell(f"Starting {self._kind}")
            self._emulator.start()
            self._endpoint = self._emulator.endpoint
        if self._queues == "redis":
            self._redis = EmbeddedRedis(self.run_folder, self._ended.put)
            self._redis.start()
        template = read_template(self._template_path, self._parameters, self.endpoint.region)
        if self._emulator is not None:
            self._emulator.wait_ready()
        self._tell(f"Creating the stack of {self._template_path.name} on {self.endpoint_url}")
        name = f"ringfence-dev-{os.getpid()}-{secrets.token_hex(2)}"
        self._stack = create_stack(self.endpoint, template, name, wanted_of(template, self.endpoint.kind))
        self._deployment = plan(template, self._stack)
        self.outputs = outputs_of(template, self._stack, self._deployment, self.api_url)
        self._start_functions(self._deployment)
        self._start_sources(self._deployment)

    def _start_functions(self, deployment: Deployment) -> None:
        if unknown := sorted({*self._processes, *self._function_env} - set(deployment.functions)):
            raise NotRunning(f"the template has no function {', '.join(unknown)}; it has {', '.join(deployment.functions)}")
        self._tell(f"Starting {', '.join(deployment.functions)}")
        for name, function_plan in deployment.functions.items():
            function = Function(
                name=name,
                arn=function_plan.arn,
                folder=function_plan.folder,
                timeout_seconds=function_plan.timeout_seconds,
                environment=environment_of(function_plan, self.endpoint, self._auth, self._extra_of(name)),
            )
            size = size_of(name, deployment, self._processes.get(name), self._workers)
            self._pools[name] = Pool(function, size, self.logs, self._on_replaced)
            self._pools[name].start()
        for pool in self._pools.values():
            pool.wait_ready(READY_SECONDS)

    def _start_sources(self, deployment: Deployment) -> None:
        endpoint, pulse = self.endpoint, self._pulse
        account = next(iter(deployment.functions.values())).arn.split(":")[4]
        sqs, kinesis, s3 = (endpoint.client(service) for service in ("sqs", "kinesis", "s3"))
        for queue_mapping in deployment.queues:
            if self._is_on_redis(queue_mapping, deployment):
                continue  # nothing is ever in it
            pool = self._pools[queue_mapping.function]
            pollers = min(queue_mapping.maximum_concurrency or pool.size.most, pool.size.most)
            self._run(SqsSource(queue_mapping, sqs, endpoint.region, pollers, pool.invoke, pulse))
        for stream in deployment.streams:
            pool = self._pools[stream.function]
            failed = FailedBatches(s3, stream.failed_batches_bucket, stream.arn, pool.function.arn)
            self._run(KinesisSource(stream, kinesis, _beating(pool, pulse), failed, pulse))
        for schedule in deployment.schedules:
            invoke, every = _beating(self._pools[schedule.function], pulse), self._timers_every_seconds
            self._run(ScheduleSource(schedule, account, endpoint.region, every, invoke, pulse))
        _there(self._http).start(deployment.routes, account, {name: pool.invoke for name, pool in self._pools.items()})

    def _is_on_redis(self, mapping: SqsMapping, deployment: Deployment) -> bool:
        given = deployment.functions[mapping.function].environment
        return self._redis is not None and self._redis.stands_in_for(mapping.arn, given)

    def _run(self, source: Source) -> None:
        source.start()
        self._sources.append(source)

    def _join_sources(self) -> None:
        while self._sources:
            self._sources.pop().join()

    # --- finding -------------------------------------------------------------------------------------------------------

    def _pool(self, function: str) -> Pool:
        if function not in self._pools:
            raise NotRunning(f"no function {function!r} is running; there are {', '.join(self._pools) or 'none'}")
        return self._pools[function]

    def _extra_of(self, function: str) -> dict[str, str]:
        queues = (
            {} if self._redis is None else self._redis.environment(_there(self._deployment).functions[function].environment)
        )
        return {**queues, **self._extra_env, **self._function_env.get(function, {})}


def _there(thing: Thing | None) -> Thing:
    if thing is None:
        raise NotRunning
    return thing


def _beating(pool: Pool, pulse: Pulse) -> Callable[[bytes], Outcome]:
    """Invokes, and wakes the pollers after: what this function did may have filled a queue."""

    def invoke(event: bytes) -> Outcome:
        outcome = pool.invoke(event)
        pulse.beat()
        return outcome

    return invoke
