"""Registering jobs, and checking a payload against a signature before the first line runs."""

from __future__ import annotations

import pytest

from ringfence import App, Context
from ringfence.errors import Dead


def signup_app() -> App:
    app = App()

    @app.job("signup", lease="30s", timeout="2m", max_attempts=3)
    def signup(ctx: Context, email: str, age: int = 0, tags: list[str] | None = None) -> None: ...

    return app


def test_a_payload_becomes_the_named_arguments() -> None:
    spec = signup_app().jobs["signup"]
    assert spec.decode('{"email":"a@b.c","tags":["x"]}') == {"email": "a@b.c", "age": 0, "tags": ["x"]}


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ('{"email":1}', "$.email"),
        ("{}", "email"),
        ('{"email":"a","age":"7"}', "$.age"),
        ('{"email":"a","tags":["x",1]}', "$.tags[1]"),
        ('{"email":"a","extra":1}', "extra"),
        ("[]", "object"),
        ("null", "object"),
    ],
)
def test_a_wrong_payload_is_dead_with_the_path_of_the_fault(payload: str, told: str) -> None:
    with pytest.raises(Dead) as fault:
        signup_app().jobs["signup"].decode(payload)
    assert told in str(fault.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [({"lease": "100ms"}, "heartbeat"), ({"timeout": "13h"}, "timeout"), ({"timeout": 0}, "timeout")],
)
def test_c13_c22_a_lease_that_no_heartbeat_could_keep_or_a_timeout_beyond_every_lease_is_refused(
    options: dict[str, str], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        App().job("j", **options)


def test_a_name_is_registered_once() -> None:
    app = signup_app()
    with pytest.raises(ValueError, match="already"):
        app.job("signup")(lambda ctx: None)


@pytest.mark.parametrize("name", ["", "a b", "os.system()", "x" * 65, "é"])
def test_a_name_is_plain(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        App().job(name)


def test_a_job_takes_named_parameters_only() -> None:
    with pytest.raises(ValueError, match="named parameters"):

        @App().job("j")
        def collects(ctx: Context, *args: int) -> None: ...


def test_a_job_takes_its_context_first() -> None:
    with pytest.raises(ValueError, match="context"):
        App().job("j")(lambda: None)
