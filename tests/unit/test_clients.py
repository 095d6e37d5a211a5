"""C46: clients are built once per process, under a lock, never shared with a forked child, with room for every thread."""

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import Mock

import boto3
import pytest

from ringfence.aws import clients
from ringfence.settings import Misconfigured

SERVICES = ("sqs", "kinesis", "dynamodb", "s3")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith(("AWS_", "LOCALSTACK"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    clients.forget()
    yield
    clients.make_room(0)
    clients.forget()


def in_threads(count: int, work: Any) -> list[Any]:
    start = threading.Barrier(count)
    results: list[Any] = []

    def run() -> None:
        start.wait()
        results.append(work())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_client_is_built_once() -> None:
    assert clients.client("sqs") is clients.client("sqs")
    assert clients.client("sqs") is not clients.client("sqs", long_poll=True)


def test_fifty_threads_at_a_cold_start_share_one_client_of_each_service(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    really = boto3.session.Session.client

    def counting(session: Any, service: str, **more: Any) -> Any:
        built.append(service)
        return really(session, service, **more)

    monkeypatch.setattr(boto3.session.Session, "client", counting)
    everybodys = in_threads(50, lambda: tuple(id(clients.client(service)) for service in SERVICES))
    assert len(everybodys) == 50
    assert len(set(everybodys)) == 1
    assert sorted(built) == sorted(SERVICES)


def test_two_hundred_cold_starts_of_fifty_threads_build_no_client_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With clients that cost nothing to build, and let everybody else come between."""
    built: list[str] = []
    everybody = threading.Barrier(50)

    class Session:
        def __init__(self, **_more: Any) -> None: ...

        def client(self, service: str, **_more: Any) -> object:
            built.append(service)
            time.sleep(0)
            return Mock()

    def start_cold_again_and_again() -> list[tuple[int, ...]]:
        got = []
        for _ in range(200):
            if everybody.wait() == 0:
                clients.forget()
            everybody.wait()
            got.append(tuple(id(clients.client(service)) for service in SERVICES))
        return got

    monkeypatch.setattr(boto3.session, "Session", Session)
    rounds = zip(*in_threads(50, start_cold_again_and_again), strict=True)
    assert [len(set(everybodys)) for everybodys in rounds] == [1] * 200
    assert Counter(built) == dict.fromkeys(SERVICES, 200)


def test_a_forked_child_builds_its_own_even_if_a_thread_of_its_parent_was_building() -> None:
    program = """
import os, threading
from ringfence.aws import clients
parents = clients.client("sqs")
holding, done = threading.Event(), threading.Event()
def hold():
    with clients._clients._building:
        holding.set()
        done.wait()
threading.Thread(target=hold, daemon=True).start()
holding.wait()
child = os.fork()
if child == 0:
    os._exit(0 if clients.client("sqs") is not parents and clients.client("kinesis") else 1)
done.set()
assert clients.client("sqs") is parents
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, timeout=60, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("service", SERVICES)
def test_a_call_cannot_outlast_a_lease(service: str) -> None:
    config = clients.client(service).meta.config
    assert config.retries["mode"] == "standard"
    attempts = config.retries["total_max_attempts"]
    worst_seconds = attempts * (config.connect_timeout + config.read_timeout)
    assert worst_seconds <= {"kinesis": 3, "s3": 66}.get(service, 14)
    assert config.max_pool_connections >= 64
    assert config.tcp_keepalive is True


def test_a_long_poll_has_longer_than_sqs_takes_to_answer() -> None:
    assert clients.client("sqs", long_poll=True).meta.config.read_timeout >= clients.LONG_POLL_SECONDS + 5


def test_the_region_may_be_named_as_lambda_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert clients.client("sqs").meta.region_name == "eu-north-1"


def test_without_a_region_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    with pytest.raises(Misconfigured, match="AWS_REGION"):
        clients.client("sqs")


def test_the_endpoint_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4999")
    monkeypatch.setenv("LOCALSTACK_HOST", "localhost:4566")
    assert clients.client("sqs").meta.endpoint_url == "http://127.0.0.1:4999"


def test_localstacks_defaults_apply_where_only_its_host_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSTACK_HOST", "localhost.localstack.cloud:4566")
    client = clients.client("sqs")
    assert client.meta.endpoint_url == "http://localhost.localstack.cloud:4566"
    assert client.meta.region_name == "eu-west-1"
    assert client.meta.config.read_timeout == 5


def test_an_endpoint_of_one_service_leaves_the_others_to_localstack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSTACK_HOST", "localhost:4566")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:4998")
    assert clients.client("dynamodb").meta.endpoint_url == "http://127.0.0.1:4998"
    assert clients.client("sqs").meta.endpoint_url == "http://localhost:4566"


class AnswersTogether(BaseHTTPRequestHandler):
    """Keeps requests waiting for each other, so that as many connections are open at once."""

    protocol_version = "HTTP/1.1"
    together: threading.Barrier

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.together.wait(30)
        body = json.dumps({"Attributes": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        pass


class ManyAtOnce(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


@pytest.mark.parametrize(("jobs", "calls"), [(1, 64), (40, 80)])
def test_as_many_calls_at_once_as_there_may_be_throw_no_connection_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, jobs: int, calls: int
) -> None:
    clients.make_room(jobs)
    monkeypatch.setattr(AnswersTogether, "together", threading.Barrier(calls), raising=False)
    with ManyAtOnce(("127.0.0.1", 0), AnswersTogether) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        client = clients.client("sqs")
        with caplog.at_level(logging.WARNING, logger="urllib3.connectionpool"):
            answers = in_threads(calls, lambda: client.get_queue_attributes(QueueUrl="http://q", AttributeNames=["All"]))
        assert len(answers) == calls
        assert [record.getMessage() for record in caplog.records] == []
        client.close()
        server.shutdown()
