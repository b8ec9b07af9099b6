"""The queue of jobs, on a journal and on PostgreSQL: each is done once, and none is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from accerl.records import json_hash
from studies.jobs.process_identity import has_ended, this_process
from studies.jobs.storage import open_storage
from studies.jobs.store import MAX_LOSSES, STALE_SECONDS, Claim, JobStore, job_counts

JOBS: list[dict[str, Any]] = [
    {"do": "inner", "seed": seed, "table": [0.5] * 500} for seed in range(4)
]


def join(where: str, **kwargs: Any) -> JobStore:
    return JobStore(open_storage(where), "study", **kwargs)


def trials(where: str) -> list[FrozenTrial]:
    return optuna.load_study(study_name="study", storage=open_storage(where)).trials


def claimed(store: JobStore) -> Claim:
    claim = store.claim()
    assert claim is not None
    return claim


def died_as(process: dict[str, Any], store: JobStore) -> Claim:
    """Claim a job as another process would, which is never heard of again."""
    claim = claimed(store)
    store._storage.set_trial_user_attr(claim.trial_id, "process", process)
    store.look()
    return claim


def dead_process() -> dict[str, Any]:
    """Return what a process that has lived on this machine said of itself."""
    code = "import json, studies.jobs.process_identity as p; print(json.dumps(p.this_process()))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    return json.loads(said)


def test_a_job_is_known_by_its_hash_and_never_added_twice(where: str) -> None:
    store = join(where)
    keys = store.add([*JOBS, JOBS[0]])
    assert keys == [json_hash(job) for job in [*JOBS, JOBS[0]]]
    assert join(where).add(JOBS) == keys[:4]
    assert len(trials(where)) == 4
    assert store.counts() == {"done": 0, "running": 0, "waiting": 4, "failed": 0}


def test_results_outlive_everybody(where: str) -> None:
    store = join(where)
    keys = store.add(JOBS)
    for number in range(4):
        claim = claimed(store)
        assert claim.job == JOBS[number]  # in the order of adding, with all their values
        assert store.finish(claim, {"value": number, "score": float("nan")}, 1.5)
    assert store.claim() is None
    again = join(where)
    assert again.add(JOBS) == keys
    assert [again.result(key)["value"] for key in keys] == [0, 1, 2, 3]
    assert again.claim() is None
    assert {trial.values[0] for trial in trials(where)} == {1.5}
    assert job_counts(open_storage(where)) == {
        "study": {"done": 4, "running": 0, "waiting": 0, "failed": 0}
    }


def test_what_many_jobs_hold_is_stored_once(where: str) -> None:
    join(where).add(JOBS)
    (part,) = optuna.load_study(study_name="study", storage=open_storage(where)).user_attrs.values()
    assert part == JOBS[0]["table"]
    assert all("table" not in trial.user_attrs["fields"] for trial in trials(where))
    assert claimed(join(where)).job == JOBS[0]  # by one who has not seen the part yet


def test_many_who_claim_at_once_get_different_jobs(where: str) -> None:
    jobs = [{"do": "inner", "seed": seed} for seed in range(24)]
    join(where).add(jobs)
    stores = [join(where) for _ in range(4)]
    start, taken = threading.Barrier(4), []

    def claim_all(store: JobStore) -> None:
        start.wait()
        while (claim := store.claim()) is not None:
            taken.append(claim.job["seed"])

    threads = [threading.Thread(target=claim_all, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(24))


def test_a_job_that_two_add_at_the_same_moment_is_done_once(where: str) -> None:
    join(where).add(JOBS[:1])
    study = optuna.load_study(study_name="study", storage=open_storage(where))
    study.add_trial(create_trial(state=TrialState.WAITING, user_attrs=study.trials[0].user_attrs))
    store = join(where)
    claim = claimed(store)
    assert store.claim() is None
    assert join(where).claim() is None
    store.finish(claim, "done", 0.0)
    assert join(where).claim() is None
    assert join(where).counts() == {"done": 1, "running": 0, "waiting": 0, "failed": 0}


def test_the_job_of_a_dead_process_is_put_back_by_whoever_sees_it(where: str) -> None:
    store = join(where)
    (key,) = store.add(JOBS[:1])
    died_as(dead_process(), store)
    assert store.state(key) == "running"
    store.reclaim()
    assert store.state(key) == "waiting"
    join(where).reclaim()  # somebody else, a bit late
    assert claimed(store).job == JOBS[0]
    states = [trial.state for trial in trials(where)]
    assert states == [TrialState.FAIL, TrialState.RUNNING]
    store.look()
    store.reclaim()  # its own is alive
    assert len(trials(where)) == 2


def test_another_machine_counts_as_dead_when_it_is_silent_for_long(where: str) -> None:
    seconds = [0.0]
    store = join(where, clock=lambda: seconds[0])
    (key,) = store.add(JOBS[:1])
    claim = died_as({**this_process(), "machine": "elsewhere"}, store)

    def state_after(more: float) -> str:
        seconds[0] += more
        store.look()
        store.reclaim()
        return store.state(key)

    assert state_after(1e6) == "running"  # we have only begun to listen
    assert state_after(STALE_SECONDS - 1.0) == "running"
    assert store.beat(claim)
    assert state_after(2.0) == "running"
    assert state_after(STALE_SECONDS + 1.0) == "waiting"
    assert not store.beat(claim)
    assert not store.finish(claim, "late", 1.0)  # somebody else's result will count
    again = claimed(store)
    assert store.finish(again, "in time", 1.0)
    store.look()
    assert store.result(key) == "in time"


def test_one_who_died_between_claiming_and_signing_is_noticed(where: str) -> None:
    seconds = [0.0]
    store = join(where, clock=lambda: seconds[0])
    (key,) = store.add(JOBS[:1])
    (trial,) = trials(where)
    store._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING)
    for _ in range(2):
        assert store.state(key) in ("waiting", "running")
        store.look()
        store.reclaim()
        seconds[0] += STALE_SECONDS + 1.0
    assert store.state(key) == "waiting"


def test_three_exceptions_are_enough_and_asking_again_starts_anew(where: str) -> None:
    store = join(where)
    (key,) = store.add(JOBS[:1])
    for attempt in range(3):
        assert store.state(key) == "waiting"
        store.fail(claimed(store), f"ValueError: {attempt}", "Traceback ...")
    assert store.state(key) == "failed"
    assert store.error(key) == "ValueError: 2"
    assert store.claim() is None
    assert trials(where)[0].user_attrs["traceback"] == "Traceback ..."
    store.add(JOBS[:1])
    assert store.state(key) == "waiting"
    store.finish(claimed(store), 7, 1.0)
    store.look()
    assert store.result(key) == 7


def test_a_job_that_kills_every_process_is_given_up() -> None:
    store = JobStore(optuna.storages.InMemoryStorage(), "study")
    (key,) = store.add(JOBS[:1])
    dead = dead_process()
    for _ in range(MAX_LOSSES):
        died_as(dead, store)
        store.reclaim()
    assert store.state(key) == "failed"
    assert "died, 10 times" in store.error(key)


def test_given_back_and_lost_jobs_are_done_by_others(where: str) -> None:
    store = join(where)
    (key,) = store.add(JOBS[:1])
    store.give_back(claimed(store))
    assert store.state(key) == "waiting"
    claim = claimed(store)
    # One who gives back and dies before the job waits again.
    store._storage.set_trial_state_values(claim.trial_id, TrialState.FAIL)
    store.look()
    assert store.state(key) == "lost"
    store.add(JOBS[:1])
    assert store.state(key) == "waiting"
    assert [trial.user_attrs["round"] for trial in trials(where)] == [0, 0, 0]


def test_a_result_whose_other_half_is_gone_is_made_again(where: str) -> None:
    store = join(where)
    (key,) = store.add(JOBS[:1])
    store.finish(claimed(store), "first", 1.0, {"summary.json": "..."})
    store.add(JOBS[:1])
    assert store.records(key) == {"summary.json": "..."}
    store.add(JOBS[:1], is_whole=lambda *asked: asked != (key, JOBS[0]))
    assert store.state(key) == "waiting"
    store.finish(claimed(store), "second", 1.0)
    store.look()
    assert store.result(key) == "second"
    assert store.records(key) is None


def test_workers_learn_that_a_study_is_finished(where: str) -> None:
    store = join(where)
    assert not join(where).is_finished
    store.is_finished = True
    assert join(where).is_finished
    store.is_finished = False
    assert not join(where).is_finished


def test_other_studies_in_the_storage_are_left_alone(where: str) -> None:
    storage = open_storage(where)
    other = optuna.create_study(study_name="tuning", storage=storage)
    other.enqueue_trial({"x": 1.0})
    join(where).add(JOBS)
    assert list(job_counts(storage)) == ["study"]
    assert JobStore(storage, "tuning").claim() is None


def test_a_process_is_known_by_more_than_its_number() -> None:
    me = this_process()
    assert has_ended(me) is False
    assert has_ended({**me, "started": me["started"] - 1}) is True  # the number was used again
    assert has_ended({**me, "machine": "elsewhere"}) is None
