"""In a layer, so that the tests see layers on the path: a history of what the functions were given, one JSON line each."""

import json
import os


def record(**what: object) -> None:
    line = json.dumps({"pid": os.getpid(), **what}) + "\n"
    # One write to a file opened for appending: lines of several processes do not mix.
    with open(os.environ["TRACE"], "ab", buffering=0) as file:
        file.write(line.encode())


def seen(**what: object) -> int:
    """How many recorded lines hold all of these."""
    try:
        with open(os.environ["TRACE"], encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    except FileNotFoundError:
        return 0
    return sum(all(line.get(key) == value for key, value in what.items()) for line in lines)
