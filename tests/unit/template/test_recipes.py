"""The README's "Add a queue" and "A table of your own", done to a copy of the template as they say.

A template that has queues or tables beside ours is not one to try them on: it has been through this already.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.local.template import read_template

from . import test_queues, test_tables
from .conftest import Stack, rendered
from .test_stores import EXAMPLE_KEYS

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEMPLATE = (ROOT / "template.yaml").read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(
    rendered(()).queues.keys() != {"default", "priority"} or {*rendered(()).tables.values()} != EXAMPLE_KEYS.keys(),
    reason="template.yaml has queues or tables of its own",
)

POLICY = """
          - Effect: Allow
            Action: [dynamodb:ConditionCheckItem, dynamodb:DeleteItem, dynamodb:GetItem, dynamodb:PutItem, dynamodb:UpdateItem]
            Resource: !GetAtt OrdersTable.Arn"""

_IN_A_LIST = re.compile(r', ("priority": "\$\{priority\}"|!GetAtt PriorityQueue\.Arn|!Ref PriorityQueue\b)')


def section(title: str) -> str:
    return README.partition(f"### {title}\n")[2].partition("\n## ")[0].partition("\n### ")[0]


def with_a_table(template: str) -> str:
    """Each hunk of the diff stands in the template exactly once without its added lines."""
    (diff,) = re.findall(r"```diff\n(.*?)```", section("A table of your own"), re.DOTALL)
    for hunk in diff.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        there = "".join(line[1:] for line in lines if not line.startswith("+"))
        assert template.count(there) == 1, there
        template = template.replace(there, "".join(line[1:] for line in lines if not line.startswith("-")))
    return template


def with_a_queue(template: str) -> tuple[str, int]:
    """Copied where it names `priority`: an entry of a list on one line beside the other, anything else with all that is
    indented below it. And in how many places that was."""
    lines, done, places = template.splitlines(keepends=True), [], 0
    while lines:
        line = lines.pop(0)
        if "priority" not in line.lower() or line.lstrip().startswith("#"):
            done.append(line)
            continue
        places += 1
        if _IN_A_LIST.search(line):
            done.append(_IN_A_LIST.sub(lambda found: found[0] + renamed(found[0]), line))
            continue
        block = [line]
        while not lines[0].strip() or indent(lines[0]) > indent(line):
            block.append(lines.pop(0))
        done += [*block, *map(renamed, block)]
    lowered = re.sub(r"(QueueMaximumConcurrency:\n +Type: Number\n +Default:) \d+", r"\1 2", "".join(done))
    return lowered, places


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def renamed(text: str) -> str:
    return text.replace("priority", "reports").replace("Priority", "Reports")


def written(folder: Path, template: str) -> Path:
    for beside in ("functions", "layers"):
        (folder / beside).symlink_to(ROOT / beside)
    (folder / "template.yaml").write_text(template, encoding="utf-8")
    return folder / "template.yaml"


@pytest.fixture(scope="module")
def complete() -> str:
    return with_a_table(with_a_queue(TEMPLATE)[0])


def test_the_readme_counts_the_places_of_a_queue() -> None:
    recipe = section("Add a queue")
    _, places = with_a_queue(TEMPLATE)

    assert "grep -n -i priority template.yaml" in recipe
    assert "say, `reports`" in recipe
    # RINGFENCE_QUEUES names it in two lines: what it is called, and where it is.
    assert (places - 1, "There are fifteen" in recipe) == (15, True)


def test_with_both_recipes_followed_every_check_of_the_template_passes(complete: str, tmp_path: Path) -> None:
    others = ("test_recipes.py", "test_front_door.py")  # the latter sees neither queues nor tables
    beside = [file for file in sorted(Path(__file__).parent.glob("test_*.py")) if file.name not in others]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", *map(str, beside)]
    environment = {**os.environ, "TEMPLATE_UNDER_TEST": str(written(tmp_path, complete))}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stdout


def test_with_both_recipes_followed_the_queue_and_the_table_are_there(complete: str, tmp_path: Path) -> None:
    for examples in ("true", "false"):
        folder = tmp_path / examples
        folder.mkdir()
        stack = Stack(read_template(written(folder, complete), {"ExampleTables": examples}, "eu-west-1"))
        assert stack.tables["Orders"] == "OrdersTable"
        assert stack.queues["reports"] == "ReportsQueue"
        assert test_tables.missed(stack, "OrdersTable") == test_queues.missed(stack, "reports", "ReportsQueue") == []


def test_without_the_lines_in_the_policy_that_place_is_named(complete: str, tmp_path: Path) -> None:
    assert complete.count(POLICY) == 1
    forgotten = Stack(read_template(written(tmp_path, complete.replace(POLICY, "")), {}, "eu-west-1"))

    with pytest.raises(AssertionError, match="WorkerPolicy"):
        test_tables.test_every_table_of_the_jobs_is_named_in_every_place(forgotten)
    assert test_tables.missed(forgotten, "OrdersTable") == ["WorkerPolicy, with the example tables and without"]
