"""A queue of jobs in an Optuna study: any storage of Optuna's will do, and many processes at once.

A job is plain JSON, known by its hash. Every attempt at it is a trial: WAITING until a process
claims it, then RUNNING, at last COMPLETE with its result, or FAIL. Of several trials of one job
the first that has not failed counts, so that two who add the same job at once do no harm. A job
that was given up, or whose result got lost, is tried again in another *round*.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic, perf_counter, time
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from accerl.records import json_hash
from studies.jobs.process_identity import has_ended, this_process

PART_CHARACTERS = 1000
"""a value of a job whose JSON is longer is stored once, however many jobs hold it"""
MAX_ERRORS = 3
"""exceptions after which a job is given up"""
MAX_LOSSES = 10
"""deaths of its processes after which a job is given up: it may need more memory than there is"""
STALE_SECONDS = 90.0
"""a process on another machine that has not been heard of for so long is taken for dead"""
POLL_SECONDS = 0.5
"""between two looks at a storage that answers fast"""
_FINISHED = "accerl:finished"
"""of a study that holds jobs: whether it needs no more workers"""


@dataclass(frozen=True)
class Claim:
    """A job that this process alone is to do."""

    trial_id: int
    key: str
    job: dict[str, Any]


class _Progress:
    """What the trials of one job have come to, in its last round."""

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        self.round: int = max(trial.user_attrs["round"] for trial in trials)
        trials = [trial for trial in trials if trial.user_attrs["round"] == self.round]
        failed = [trial for trial in trials if trial.state is TrialState.FAIL]
        self.trial = next((trial for trial in trials if trial.state is not TrialState.FAIL), None)
        self.errors = [t.user_attrs["error"] for t in failed if "error" in t.user_attrs]
        losses = sum("lost" in trial.user_attrs for trial in failed)
        if losses >= MAX_LOSSES:
            self.errors.append(f"the process that did it died, {losses} times")
        self.given_up = losses >= MAX_LOSSES or len(self.errors) >= MAX_ERRORS

    @property
    def state(self) -> str:
        """Return done, failed, waiting, running, or lost: nobody has put it back."""
        if self.trial is not None and self.trial.state is TrialState.COMPLETE:
            return "done"
        if self.given_up:
            return "failed"
        if self.trial is None:
            return "lost"
        return "waiting" if self.trial.state is TrialState.WAITING else "running"


class JobStore:
    """The jobs of one study in a storage; nothing is remembered here that is not there.

    Args:
        storage: any of Optuna's.
        name: of the study; made if the storage has none of that name.
        clock: seconds that only go forward.
    """

    def __init__(
        self, storage: BaseStorage, name: str, *, clock: Callable[[], float] = monotonic
    ) -> None:
        optuna.create_study(study_name=name, storage=storage, load_if_exists=True)
        self._storage = storage
        self._study_id = storage.get_study_id_from_name(name)
        self._clock = clock
        self._me = this_process()
        self._parts: dict[str, Any] = {}
        self._trials: dict[str, dict[int, FrozenTrial]] = {}
        self._jobs: dict[str, _Progress] = {}
        self._seen = 0
        self._open: set[int] = set()
        self._unfinished: list[_Progress] = []
        self._waiting: deque[FrozenTrial] = deque()
        self._heard: dict[int, tuple[Any, float]] = {}
        self._look_seconds = 0.0
        if _FINISHED not in storage.get_study_system_attrs(self._study_id):
            self.is_finished = False

    def add(
        self,
        jobs: Sequence[dict[str, Any]],
        *,
        is_whole: Callable[[str, dict[str, Any]], bool] = lambda key, job: True,
    ) -> list[str]:
        """Have jobs done that are not done yet, not waiting and not running; return their keys.

        Args:
            jobs: in the order in which they are to be begun.
            is_whole: (key, job) -> whether what a finished job left elsewhere is still there. If
                not it is done again. One that was given up is tried again too.
        """
        self.look()
        keys = [json_hash(job) for job in jobs]
        for key, job in dict(zip(keys, jobs, strict=True)).items():
            progress = self._jobs.get(key)
            state = "unknown" if progress is None else progress.state
            again = state == "failed" or (state == "done" and not is_whole(key, job))
            if again or state in ("unknown", "lost"):
                number = 0 if progress is None else progress.round + again
                self._put({"job": key, "round": number, **self._split(job)})
        self.look()
        return keys

    def claim(self) -> Claim | None:
        """Return a job that nobody else will do meanwhile; None if none is waiting."""
        while self._waiting or self._find_waiting():
            trial = self._waiting.popleft()
            trial_id = trial._trial_id
            try:
                if not self._storage.set_trial_state_values(trial_id, TrialState.RUNNING):
                    continue  # somebody else was faster
            except UpdateFinishedTrialError:
                continue  # and has even done it
            self._storage.set_trial_user_attr(trial_id, "process", self._me)
            return Claim(trial_id, trial.user_attrs["job"], self._job(trial))
        return None

    def finish(
        self, claim: Claim, result: Any, seconds: float, records: dict[str, str] | None = None
    ) -> bool:
        """Keep the result of a claimed job.

        Args:
            claim: the job.
            result: plain JSON.
            seconds: of the processor that it took.
            records: of its run directory, if that has to travel.

        Returns:
            Whether it counts: not if others took this process for dead and did the job.
        """
        kept = {"result": result} if records is None else {"result": result, "records": records}
        return self._end(claim.trial_id, TrialState.COMPLETE, [seconds], **kept)

    def fail(self, claim: Claim, error: str, traceback: str) -> None:
        """Say that a claimed job has raised an exception; it is tried `MAX_ERRORS` times."""
        self._put_back(claim.trial_id, error=error, traceback=traceback)

    def give_back(self, claim: Claim) -> None:
        """Leave a claimed job to others."""
        self._put_back(claim.trial_id)

    def beat(self, claim: Claim) -> bool:
        """Tell other machines that this process still works on a job; False if it need not."""
        try:
            self._storage.set_trial_user_attr(claim.trial_id, "heard", time())
        except UpdateFinishedTrialError:
            return False
        return True

    def reclaim(self) -> None:
        """Put back the jobs that are running, as of the last look, in processes that have died."""
        running = [job.trial for job in self._unfinished if job.state == "running" and job.trial]
        for trial in running:
            if self._is_dead(trial):
                self._put_back(trial._trial_id, lost=True)

    def look(self) -> None:
        """Read how things stand; a trial that has ended stays as it is, and is read no more."""
        started = perf_counter()
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
        changed: dict[str, None] = {}
        for number in (*sorted(self._open), *range(self._seen, len(trials))):
            trial = trials[number]
            if "job" in trial.user_attrs:  # another study of that name has other trials
                key = trial.user_attrs["job"]
                self._trials.setdefault(key, {})[number] = trial
                changed[key] = None
            self._open.discard(number)
            if not trial.state.is_finished():
                self._open.add(number)
        self._seen = len(trials)
        for key in changed:
            self._jobs[key] = _Progress([*self._trials[key].values()])
        unfinished = dict.fromkeys(
            trials[number].user_attrs.get("job") for number in sorted(self._open)
        )
        self._unfinished = [self._jobs[key] for key in unfinished if key is not None]
        self._waiting = deque(
            job.trial for job in self._unfinished if job.state == "waiting" and job.trial
        )
        self._look_seconds = perf_counter() - started

    @property
    def patience_seconds(self) -> float:
        """How long to wait between looks, lest they take more than a twentieth of the time."""
        return max(POLL_SECONDS, 20.0 * self._look_seconds)

    def state(self, key: str) -> str:
        """Return done, failed (given up), waiting, running, or lost: to be added again."""
        return self._jobs[key].state

    def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state: done, running, waiting, failed."""
        self.look()
        found = Counter(job.state for job in self._jobs.values())
        found["waiting"] += found.pop("lost", 0)
        return {state: found[state] for state in ("done", "running", "waiting", "failed")}

    def result(self, key: str) -> Any:
        """Return the result of a job that is done."""
        return self._done(key).user_attrs["result"]

    def seconds(self, key: str) -> float:
        """Return the processor seconds that a job that is done took the process that did it."""
        return self._done(key).values[0]

    def records(self, key: str) -> dict[str, str] | None:
        """Return the records that travelled with the result of a job that is done."""
        return self._done(key).user_attrs.get("records")

    def error(self, key: str) -> str:
        """Return why a job was given up."""
        return self._jobs[key].errors[-1]

    @property
    def is_finished(self) -> bool:
        """Whether the study has said that it needs no more workers."""
        return self._storage.get_study_system_attrs(self._study_id)[_FINISHED]

    @is_finished.setter
    def is_finished(self, value: bool) -> None:
        self._storage.set_study_system_attr(self._study_id, _FINISHED, value)

    def _done(self, key: str) -> FrozenTrial:
        trial = self._jobs[key].trial
        assert trial is not None
        assert trial.state is TrialState.COMPLETE
        return trial

    def _find_waiting(self) -> bool:
        self.look()
        return bool(self._waiting)

    def _put(self, attributes: dict[str, Any]) -> None:
        trial = create_trial(state=TrialState.WAITING, user_attrs=attributes)
        self._storage.create_new_trial(self._study_id, template_trial=trial)

    def _end(
        self, trial_id: int, state: TrialState, values: list[float] | None = None, **kept: Any
    ) -> bool:
        """End a trial, keeping attributes; False if somebody else has ended it."""
        try:
            for name, value in kept.items():
                self._storage.set_trial_user_attr(trial_id, name, value)
            self._storage.set_trial_state_values(trial_id, state, values)
        except UpdateFinishedTrialError:
            return False
        return True

    def _put_back(self, trial_id: int, **why: Any) -> None:
        if not self._end(trial_id, TrialState.FAIL, **why):
            return
        self.look()
        attributes = self._storage.get_trial(trial_id).user_attrs
        # Whoever dies here leaves a job that is lost, until its study asks for it again.
        if self._jobs[attributes["job"]].state == "lost":
            self._put({name: attributes[name] for name in ("job", "round", "fields", "parts")})
            self.look()

    def _is_dead(self, trial: FrozenTrial) -> bool:
        """Whether the process that does a trial has died.

        Clocks of machines differ: what counts is how long, on ours, we have heard nothing new.
        """
        process = trial.user_attrs.get("process")
        ended = None if process is None else has_ended(process)
        if ended is not None:
            return ended
        heard, now = trial.user_attrs.get("heard"), self._clock()
        known = self._heard.get(trial.number)
        if known is None or known[0] != heard:
            self._heard[trial.number] = (heard, now)
            return False
        return now - known[1] > STALE_SECONDS

    def _split(self, job: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Store large values of a job with the study, once; return what a trial says of the job."""
        fields, parts = {}, {}
        for name, value in job.items():
            if len(json.dumps(value)) > PART_CHARACTERS:
                parts[name] = self._store_part(value)
            else:
                fields[name] = value
        return {"fields": fields, "parts": parts}

    def _store_part(self, value: Any) -> str:
        name = json_hash(value)
        if name not in self._parts:
            if name not in self._read_parts():
                self._storage.set_study_user_attr(self._study_id, name, value)
            self._parts[name] = value
        return name

    def _job(self, trial: FrozenTrial) -> dict[str, Any]:
        """Return the job that a trial is of, with its large values."""
        names = trial.user_attrs["parts"]
        if not self._parts.keys() >= set(names.values()):
            self._parts = dict(self._read_parts())
        parts = {name: self._parts[part] for name, part in names.items()}
        return {**trial.user_attrs["fields"], **parts}

    def _read_parts(self) -> dict[str, Any]:
        return self._storage.get_study_user_attrs(self._study_id)


def job_counts(storage: BaseStorage) -> dict[str, dict[str, int]]:
    """Return how the jobs of every study in a storage stand, see `JobStore.counts`."""
    studies = [study for study in storage.get_all_studies() if _FINISHED in study.system_attrs]
    return {study.study_name: JobStore(storage, study.study_name).counts() for study in studies}
