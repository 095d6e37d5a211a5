"""Members of the sorted set, and the leases made of them."""

from __future__ import annotations

import pytest

from ringfence.ports import Lease
from ringfence.redis import packing
from ringfence.redis.messages import leases_in, with_deliveries, with_start

ID = "0006c5e2f1a3b"
LEASED_AT = 1_764_496_653_123


def lease_of(member: str, deliveries: int = 1) -> Lease:
    (lease,) = leases_in([LEASED_AT, -1, 0, member, deliveries], "default")
    return lease


def test_a_message_of_ours_is_id_and_body() -> None:
    lease = lease_of(f'{ID}\x1f{{"v":1}}', 3)

    assert lease == Lease('{"v":1}', f"3.{LEASED_AT}.{ID}", 3, ID, "default")


@pytest.mark.parametrize(
    "member",
    ["hello", "", "hello, world!", "x" * 14, "a\x1fb", f"{ID}", f"{ID} \x1f", "[1.5]", "\udcff\udcfe", "ünïcødé", "\x1f", "~"],
)
def test_a_strangers_message_is_its_own_body_and_goes_back_as_it_was(member: str) -> None:
    lease = lease_of(member)

    assert lease.body == member
    assert lease.message_id
    assert with_deliveries([lease])[0] == member


@pytest.mark.parametrize("body", ["{}", "", "a\x1fb", "\x1f", "\udcff"])
def test_a_message_of_ours_goes_back_as_it_was(body: str) -> None:
    lease = lease_of(f"{ID}\x1f{body}")

    assert lease.body == body
    assert with_deliveries([lease])[0] == f"{ID}\x1f{body}"


def test_different_messages_have_different_ids() -> None:
    assert lease_of("hello").message_id != lease_of("hallo").message_id


def test_the_receipt_holds_deliveries_and_the_time_of_the_lease() -> None:
    lease = lease_of(f"{ID}\x1f{{}}", 12)

    assert with_deliveries([lease])[1] == "12"
    assert with_start([lease])[1:] == ["12", str(LEASED_AT)]


@pytest.mark.parametrize("receipt", ["forged", "", ".", "1", "-1.5", "\x00"])
def test_a_receipt_of_another_form_is_sent_as_what_it_is_not(receipt: str) -> None:
    forged = Lease("{}", receipt, 1, ID, "default")

    assert len(with_deliveries([forged])) == 2
    assert len(with_start([forged])) == 3


@pytest.mark.parametrize(
    "command",
    [
        ("EVALSHA", "abc", 2, "{q}:messages", "{q}:wake", 0, 1, "body"),
        ("PING",),
        ("SET", "schlüssel", "🦊", -5),
        ("SET", "", "\x00\r\n"),
    ],
)
def test_a_command_is_the_same_bytes_with_and_without_hiredis(
    command: tuple[str | int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = packing.pack(command)
    monkeypatch.setattr(packing, "_pack", None)

    assert packing.pack(command) == packed
    assert packed.startswith(b"*%d\r\n$" % len(command))


def test_bytes_that_are_not_text_are_the_same_bytes_again() -> None:
    member = b"\xff\xfe\x00".decode("utf-8", packing.ERRORS)

    assert packing.pack(("ZREM", "set", member)).endswith(b"$3\r\n\xff\xfe\x00\r\n")
