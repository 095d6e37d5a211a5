"""Messages of a queue reach a function, and only those it has finished are deleted."""

from __future__ import annotations

import os
import signal

from .conftest import App, eventually


def test_only_the_failed_message_of_a_batch_comes_again(app: App) -> None:
    names = [app.name() for _ in range(4)]
    app.send({"id": names[0]}, {"id": names[1], "do": "fail", "times": 2}, {"id": names[2]}, {"id": names[3]})
    history = app.given("take", names, [1, 3, 1, 1])
    assert [sum(line["id"] == name for line in history) for name in names] == [1, 3, 1, 1]
    eventually(lambda: app.in_queue() == 0, "an empty queue")


def test_after_an_error_of_the_function_every_message_of_the_batch_comes_again(app: App) -> None:
    names = [app.name() for _ in range(3)]
    app.send({"id": names[0], "do": "raise"}, {"id": names[1]}, {"id": names[2]})
    history = app.given("take", names, [2, 1, 1])
    # Whoever was in a batch with the first one, at its first time, was not deleted.
    first = next(n for n, line in enumerate(history) if line["id"] == names[0])
    hurt = {
        line["id"] for line in history[first + 1 - history[first]["batch"] : first + 1] if line["pid"] == history[first]["pid"]
    }
    app.given("take", sorted(hurt), [2] * len(hurt))
    eventually(lambda: app.in_queue() == 0, "an empty queue")


def test_a_message_whose_process_is_killed_comes_again_to_its_successor(app: App) -> None:
    name = app.name()
    app.send({"id": name, "do": "hang"})
    victim = app.given("take", [name], [1])[0]["pid"]
    os.kill(victim, signal.SIGKILL)
    again = app.given("take", [name], [2])[1]["pid"]
    assert again != victim
    replaced = eventually(lambda: next((one for one in _replaced(app) if one.old_pid == victim), None), "the replacement told")
    assert (replaced.function, replaced.reason) == ("TakerFunction", "signal 9")
    eventually(lambda: app.in_queue() == 0, "an empty queue")


def test_a_frozen_process_keeps_its_message_until_its_time_limit_while_others_are_served(app: App) -> None:
    held, others = app.name(), [app.name() for _ in range(5)]
    app.send({"id": held, "do": "hang"})
    frozen = app.given("take", [held], [1])[0]["pid"]
    os.kill(frozen, signal.SIGSTOP)
    app.send(*({"id": other} for other in others))
    history = app.given("take", others, [1] * 5)
    assert frozen not in {line["pid"] for line in history}
    replaced = eventually(lambda: next((one for one in _replaced(app) if one.old_pid == frozen), None), "the time limit")
    assert replaced.reason == "timeout"
    # The queue's visibility timeout (2 s) is below the function's time limit (3 s), so it came again before that.
    app.given("take", [held], [2])
    eventually(lambda: app.in_queue() == 0, "an empty queue")


def test_batches_of_a_queue_run_in_several_processes_at_once(app: App) -> None:
    names = [app.name(), app.name()]
    for name in names:
        app.send({"id": name, "do": "hang"})
        app.given("take", [name], [1])
    first, second = app.history("take", *names)[:2]
    assert first["pid"] != second["pid"]
    assert {first["pid"], second["pid"]} == set(app.dev.pids("TakerFunction"))
    eventually(lambda: app.in_queue() == 0, "an empty queue")


def _replaced(app: App) -> list:
    """What was told so far, of every test; kept, for another test to look at."""
    told = []
    while not app.replaced.empty():
        told.append(app.replaced.get())
    for one in told:
        app.replaced.put(one)
    return told
