"""A reply that ends after any of its bytes is no answer: it is asked for again, and then a fault that may pass."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.retries import standard

from ringfence.aws import clients
from ringfence.aws.failures import FAILURES, code_of, may_pass


class Answers:
    """Each connection gets the next of these replies, and is closed."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self._replies: list[bytes] = []
        self._served = threading.Semaphore(0)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                received = connection.recv(65536)
                while b"\r\n\r\n" not in received or not received.partition(b"\r\n\r\n")[2]:
                    received += connection.recv(65536)
                connection.sendall(self._replies.pop(0))
            self._served.release()

    @contextmanager
    def will_be(self, *replies: bytes) -> Iterator[None]:
        """All of them are, and their connections closed when this ends: none is to be used again."""
        self._replies = list(replies)
        yield
        for _ in replies:
            assert self._served.acquire(timeout=10)

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    for name in [name for name in os.environ if name.startswith(("AWS_", "LOCALSTACK"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(standard.ExponentialBackoff, "delay_amount", lambda *_: 0.0)
    server = Answers()
    for name, value in (("DEFAULT_REGION", "eu-west-1"), ("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "x")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    clients.forget()
    yield server
    clients.forget()
    server.close()


def reply(status: str, body: dict[str, Any]) -> bytes:
    text = json.dumps(body)
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: application/x-amz-json-1.0\r\nx-amzn-requestid: 1\r\n"
        f"content-length: {len(text)}\r\n\r\n{text}"
    ).encode()


ROW = reply("200 OK", {"Item": {"pk": {"S": "job"}}})
REFUSED = reply("400 Bad Request", {"__type": "x#ConditionalCheckFailedException", "message": "no"})


def after_each_byte(whole: bytes) -> list[bytes]:
    return [whole[:end] for end in range(len(whole))]


@pytest.fixture
def quota() -> Iterator[None]:
    """botocore's retries of one client come to an end after a hundred faults."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standard.RetryQuotaChecker, "acquire_retry_quota", lambda *_: True)
        yield


@pytest.mark.usefixtures("quota")
def test_a_row_is_never_taken_for_absent(answers: Answers) -> None:
    dynamodb = clients.client("dynamodb")
    for cut in after_each_byte(ROW):
        with answers.will_be(cut, ROW):
            assert dynamodb.get_item(TableName="t", Key={"pk": {"S": "job"}})["Item"], cut


@pytest.mark.usefixtures("quota")
def test_a_refused_condition_keeps_its_name(answers: Answers) -> None:
    dynamodb = clients.client("dynamodb")
    for cut in after_each_byte(REFUSED):
        with answers.will_be(cut, REFUSED), pytest.raises(ClientError) as refused:
            dynamodb.put_item(TableName="t", Item={"pk": {"S": "job"}})
        assert code_of(refused.value) == "ConditionalCheckFailedException", cut


@pytest.mark.usefixtures("quota")
@pytest.mark.parametrize("whole", [ROW, REFUSED], ids=["row", "refused"])
def test_one_that_is_cut_again_is_a_fault_that_may_pass(answers: Answers, whole: bytes) -> None:
    dynamodb = clients.client("dynamodb")
    for cut in after_each_byte(whole):
        with answers.will_be(cut, cut), pytest.raises(FAILURES) as fault:
            dynamodb.get_item(TableName="t", Key={"pk": {"S": "job"}})
        assert may_pass(fault.value), cut


def test_a_body_without_a_length_is_looked_at_itself(answers: Answers) -> None:
    body = b'{"Messages": []}'
    head = b"HTTP/1.1 200 OK\r\nx-amzn-requestid: 1\r\n\r\n"
    with answers.will_be(head + body[:-3], head + body):
        assert clients.client("sqs").receive_message(QueueUrl=answers.url + "/q").get("Messages") == []


def test_an_answer_that_has_nothing_to_say_needs_no_body(answers: Answers) -> None:
    with answers.will_be(b"HTTP/1.1 200 OK\r\nx-amzn-requestid: 1\r\ncontent-length: 0\r\n\r\n"):
        clients.client("sqs").delete_message(QueueUrl=answers.url + "/q", ReceiptHandle="r")
