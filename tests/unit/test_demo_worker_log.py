"""Reading the workers' logs while they grow."""

from __future__ import annotations

from pathlib import Path

from ringfence.local.demo.claims import Claim, OpenClaims
from ringfence.local.demo.worker_log import Event, WorkerLog


def test_each_event_is_told_once_and_a_line_only_when_it_is_whole(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path, "WorkerFunction")
    file = tmp_path / "WorkerFunction-17.log"
    assert log.new_events() == []
    with file.open("a") as out:
        out.write('{"event":"job_claimed","job_id":"a","token":1}\n{"event":"job_suc')
        out.flush()
        assert [event.name for event in log.new_events()] == ["job_claimed"]
        assert log.new_events() == []
        out.write('ceeded","job_id":"a","token":1}\n')
    assert [(event.name, event.pid, event.job_id, event.token) for event in log.new_events()] == [("job_succeeded", 17, "a", 1)]


def test_what_is_no_event_is_passed_over_and_so_are_other_functions(tmp_path: Path) -> None:
    (tmp_path / "WorkerFunction-1.log").write_text('Traceback …\n[1]\n{"level":"INFO"}\n{"event":3}\n\n{"event":"job_dead"}\n')
    (tmp_path / "RelayFunction-2.log").write_text('{"event":"relay_held"}\n')
    assert [event.name for event in WorkerLog(tmp_path, "WorkerFunction").new_events()] == ["job_dead"]


def test_in_a_log_that_processes_share_each_line_says_whose_it_is(tmp_path: Path) -> None:
    lines = ['{"event":"process_started","pid":8}', '{"event":"job_claimed","pid":9}', '{"event":"relay_held"}']
    (tmp_path / "RingfenceWorker-7.log").write_text("\n".join(lines) + "\n")
    assert [event.pid for event in WorkerLog(tmp_path, "RingfenceWorker").new_events()] == [8, 9, 7]


def test_a_claim_is_open_until_its_own_end() -> None:
    def event(name: str, pid: int, token: int) -> Event:
        return Event(pid, name, {"job_id": "a", "token": token})

    claims = OpenClaims()
    claims.see([event("job_claimed", 1, 1), event("job_claimed", 2, 2)])
    assert list(claims.newest_first()) == [Claim("a", 2, 2), Claim("a", 1, 1)]
    claims.see([event("job_succeeded", 2, 2), event("late_write_refused", 1, 1)])
    assert claims.of(1) == [Claim("a", 1, 1)]
    assert claims.of(2) == []
    claims.see([event("lease_lost", 1, 1)])
    assert claims.of(1) == []
