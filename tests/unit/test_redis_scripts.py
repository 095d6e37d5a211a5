"""The scripts as texts: they touch only the keys they are given, and say what they want and return. C18"""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from ringfence.redis.scripts import script

FOLDER = files("ringfence.redis") / "lua"
VERBS = sorted(path.name.removesuffix(".lua") for path in FOLDER.iterdir() if path.name.endswith(".lua"))

CALL = re.compile(r"redis\.p?call\(\s*'(\w+)'\s*(?:,\s*([^,)\s]+))?")


def test_there_is_a_script_for_every_verb() -> None:
    assert {"push", "lease", "acknowledge", "acknowledge_and_lease", "extend", "release", "depth", "marker"} <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_c18_a_script_touches_only_the_keys_it_is_given(verb: str) -> None:
    source = re.sub(r"--.*", "", script(verb).source)
    calls = CALL.findall(source)
    declared = [
        name
        for names, values in re.findall(r"^local (.+) = (.*KEYS.*)$", source, re.MULTILINE)
        for name, value in zip(names.split(", "), values.split(", "), strict=True)
        if re.fullmatch(r"KEYS\[\d\]", value)
    ]

    assert len(declared) == source.count("KEYS["), "a key that is used without a name"
    assert len(calls) == source.count("redis.call(") + source.count("redis.pcall("), "a call that this test cannot read"
    assert {key for command, key in calls if command != "TIME"} <= set(declared)


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_says_what_it_wants_returns_and_how_it_fails(verb: str) -> None:
    head = re.match(r"(?:--.*\n)+", script(verb).source)

    assert head is not None
    assert head[0].startswith(f"-- {verb}: ")
    assert all(f"-- {word}" in head[0] for word in ("KEYS[1]", "Returns", "Errors"))
    assert ("ARGV" in head[0]) == ("ARGV" in script(verb).source[head.end() :])


@pytest.mark.parametrize("verb", VERBS)
def test_every_part_is_put_in_before_it_is_sent(verb: str) -> None:
    assert "-- include:" not in script(verb).source


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_takes_the_time_from_redis_and_keeps_it_to_itself(verb: str) -> None:
    """No clock of a client in ARGV, no globals (Redis refuses them at run time)."""
    source = script(verb).source

    assert "os.time" not in source
    assert not re.findall(r"^(?!local )\w+ = ", source, re.MULTILINE)


def test_what_moves_or_removes_messages_does_so_however_full_the_memory_is() -> None:
    """Its first write is one that never needs memory. The order decides, not that it is there."""
    for verb in ("lease", "acknowledge_and_lease", "extend", "release"):
        writes = [
            command for command, _ in CALL.findall(script(verb).source) if command in {"PERSIST", "ZADD", "ZREM", "RPUSH"}
        ]
        assert writes[0] == "PERSIST", verb
    assert "PERSIST" not in script("push").source, "a push has to be refused when there is no room"
